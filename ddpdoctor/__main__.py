"""``python -m ddpdoctor`` and the ``ddpdoctor`` command."""

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

_COLLECT_AFTER = 400_000
"""Objects that are made between two passes of the garbage collector: modules, facts, records and findings stay to the
end, and looking at them again and again would take an eighth of a check."""


def main() -> None:
    """Run the command line and leave with its exit status; of a bug of ours that is 2, as Python's own 1 would read as
    a finding."""
    _open_closed_streams()
    gc.set_threshold(_COLLECT_AFTER)
    from ddpdoctor.cli import run

    try:
        status = run(sys.argv[1:])
    except Exception:  # noqa: BLE001 - whatever it is, the status must not be that of a finding
        import traceback

        traceback.print_exc()
        print("ddpdoctor: error: this is a bug of ddpdoctor, not of your script or machine", file=sys.stderr)
        status = 2
    _leave(status)


def _leave(status: int) -> NoReturn:
    """End at once: taking down an interpreter with six hundred modules takes a tenth of a second. As Python does it
    where output cannot be written or a thread still works."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(status)
    if threading.active_count() > 1:
        sys.exit(status)
    atexit._run_exitfuncs()
    os._exit(status)


def _open_closed_streams() -> None:
    """Give a command that was started with closed streams (``>&-``) /dev/null in their place. Otherwise the next file
    that is opened, a log for instance, gets number 1 or 2."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()

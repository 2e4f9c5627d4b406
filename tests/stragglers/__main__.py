"""``python -m tests.stragglers [--busy] [--balanced | --slow] [NAME...]``: finds DD601 what it should, and where?

Checks thirty jobs with a slow rank and thirty whose ranks are alike; takes a quarter of an hour on two cores. With
``--busy``, a busy loop runs on each core meanwhile.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stragglers.corpus import Case, balanced, stragglers
from tests.support.command import ddpdoctor


@contextmanager
def busy_cores() -> Iterator[None]:
    """A busy loop on each core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def complaint(case: Case, folder: Path) -> str | None:
    """What is wrong with the verdict; None where it is right."""
    script = folder / "train.py"
    script.write_text(case.text)
    command = ("check", "--ignore", "host,group", "--select", "DD601", "--format", "json", "train.py")
    done = ddpdoctor(*command, cwd=folder)
    try:
        found = [(each["headline"], each["where"]) for each in done.report["findings"]]
        outcome = done.outcome("DD601")
    except (ValueError, KeyError, StopIteration):
        return f"no report: {done.out[-500:]} {done.err[-500:]}"
    if not case.slow:
        return f"found {found}" if found else None
    if not found:
        return f"not found: {outcome['text']}"
    lines = {where["line"] for _, where in found if where}
    return None if len(found) == 1 and lines & case.lines else f"line {sorted(case.lines)}: found {found}"


def main() -> int:
    """Check them; the exit status is 1 where a verdict is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.stragglers")
    parser.add_argument("names", nargs="*", help="words of which a case's name contains one")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--slow", action="store_true", help="only jobs with a slow rank")
    parser.add_argument("--balanced", action="store_true", help="only jobs without one")
    options = parser.parse_args()
    cases = [*([] if options.balanced else stragglers()), *([] if options.slow else balanced())]
    chosen = [case for case in cases if not options.names or any(name in case.name for name in options.names)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            if options.busy:
                with busy_cores():
                    complains = complaint(case, Path(folder))
            else:
                complains = complaint(case, Path(folder))
            wrong += bool(complains)
            print("wrong" if complains else "ok   ", case.name, complains or "", flush=True)
    print(f"{wrong} of {len(chosen)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

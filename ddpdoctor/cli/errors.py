"""How commands end early: wrong usage, what the machine refuses (a full disk, no more files), signals."""

import contextlib
import errno
import os
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ddpdoctor.redact import quote
from ddpdoctor.text import size

CANNOT_EXAMINE = 2
"""The exit status where nothing was examined: wrong usage, or a launch that failed for reasons of our own."""

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT, as a shell has it."""


class UsageError(Exception):
    """The command line asks for something that is not there; one line on stderr, exit status 2."""


def print_error(reason: str) -> None:
    """Say on stderr why a command ends: one line, which a terminal shows in lines of whole words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else sys.maxsize
    whole = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    whole.subsequent_indent = "  "
    print(whole.fill(f"ddpdoctor: error: {reason}"), file=sys.stderr)


_OF_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM}
_MACHINE_ERRORS = {*_OF_FILES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
"""errno values with which the machine refuses what any program may ask of it."""


def machine_error(failed: OSError) -> str | None:
    """What the machine refused, with the path and, of a full disk, the space left there; None where it did not."""
    if failed.errno == errno.ENOENT and not os.stat(".").st_nlink:  # noqa: PTH116 - of a removed folder, too
        return "the working directory was removed; change to one that exists"
    if failed.errno not in _MACHINE_ERRORS:
        return None
    path = failed.filename if isinstance(failed.filename, str) else ""
    return f"{quote(path)}: {with_space(failed, path)}" if path else with_space(failed, tempfile.gettempdir())


def with_space(failed: OSError, path: str) -> str:
    """``No space left on device (0 B free)``."""
    text = failed.strerror or str(failed)
    if failed.errno not in (errno.ENOSPC, errno.EDQUOT):
        return text
    place = next(filter(Path.is_dir, (Path(path), *Path(path).absolute().parents)), Path("/"))
    return f"{text} ({size(shutil.disk_usage(place).free)} free in {place})"


_Handler = Callable[[int, FrameType | None], object]


@contextlib.contextmanager
def handled(handler: _Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Have these signals handled; one that is ignored, as SIGHUP under nohup, stays ignored."""
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def stopped_by_signals() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP end a command in order, as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    return handled(stop, signal.SIGTERM, signal.SIGHUP)

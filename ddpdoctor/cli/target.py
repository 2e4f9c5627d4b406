"""What the words of a command line name: a script, a module or a whole command line; refused where it cannot run."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import sys
import tokenize
from pathlib import Path

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import LINE, JobOptions
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.redact import quote
from ddpdoctor.text import LONGEST_COMMAND, quote_command


def kind_of(options: JobOptions) -> JobKind:
    """What the words are."""
    if options.words and options.words[0] == LINE:
        return JobKind.LINE
    return JobKind.MODULE if options.module else JobKind.SCRIPT


def job_of(options: JobOptions, recorder: RecorderOptions) -> Job | None:
    """The job that is asked for; None where none is.

    Raises:
        UsageError: it is not there, or is not Python.
    """
    kind = kind_of(options)
    words = tuple(options.words or ())[kind is JobKind.LINE :]
    if kind is JobKind.MODULE:
        _verify_module(words)
    elif words and kind is JobKind.LINE:
        _verify_line(words)
    elif words:
        _verify_script(words)
    return Job(kind, words, recorder) if words else None


def _verify_module(words: tuple[str, ...]) -> None:
    if not words:
        raise UsageError("-m requires the name of a module")
    top = words[0].partition(".")[0]
    # Only the outermost package is looked for: finding what is in it would import it.
    if importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None:
        raise UsageError(f"-m {words[0]}: no module named {quote(top)}")


def _verify_line(words: tuple[str, ...]) -> None:
    program = words[0]
    if shutil.which(program) is None:
        hint = f"; for a script, leave out --: ddpdoctor check {program}" if program.endswith(".py") else ""
        raise UsageError(f"{quote(program)}: command not found{hint}")


def _verify_script(words: tuple[str, ...]) -> None:
    script = Path(words[0])
    if not os.path.lexists(script):
        raise UsageError(f"{quote(words[0])} does not exist")
    if script.is_dir():
        if not (script / "__main__.py").exists():
            raise UsageError(f"{quote(words[0])} is a folder without a __main__.py")
        return
    if not script.is_file():
        raise UsageError(f"{quote(words[0])} is not a regular file")
    if not _may_be_python(script):
        line = quote_command(["ddpdoctor", "check", "--", _interpreter(script), *words], LONGEST_COMMAND)
        raise UsageError(f"{quote(words[0])} is not a Python script; for any other command, use --: {line}")


def _may_be_python(script: Path) -> bool:
    """Whether it reads as Python; what is named .py is taken for it, and an error in it is its own to tell."""
    try:
        with tokenize.open(script) as opened:
            text = opened.read()
    except (SyntaxError, UnicodeDecodeError):
        return False
    except OSError as failed:
        raise UsageError(f"{quote(str(script))} cannot be read: {failed.strerror}") from None
    if "\0" in text:
        return False
    if script.suffix in (".py", ".pyw"):
        return True
    try:
        compile(text, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _interpreter(script: Path) -> str:
    return "bash" if script.suffix in (".sh", ".bash", ".slurm", ".sbatch") else "PROGRAM"

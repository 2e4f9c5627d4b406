"""The command line: one file a command, each parses, calls one function, renders and returns its status."""

from collections.abc import Sequence

from ddpdoctor.cli.errors import CANNOT_EXAMINE, UsageError, machine_error, print_error

_OF_SCRIPTS = {
    "No such command": "(for a script: ddpdoctor check SCRIPT ARGS...)",
    "No such option": "(the script's own options stand behind it: ddpdoctor check SCRIPT ARGS...)",
}
"""What to add to an error of a command line that names a script."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; an error of usage is one line on stderr and 2."""
    from ddpdoctor.cli.app import app, command_line_error

    try:
        status = app(list(arguments) or ["--help"], prog_name="ddpdoctor", standalone_mode=False)
    except (UsageError, command_line_error) as error:
        reason = _one_line(error)
        if any(word.endswith(".py") for word in arguments):
            hints = [hint for of, hint in _OF_SCRIPTS.items() if reason.startswith(of)]
            reason = " ".join((reason, *hints))
    except OSError as failed:
        reason = machine_error(failed) or ""
        if not reason:
            raise
    else:
        return status if isinstance(status, int) else 0
    print_error(reason)
    return CANNOT_EXAMINE


def _one_line(error: Exception) -> str:
    describe = getattr(error, "format_message", None)
    text = str(describe() if describe else error)
    return " ".join(text.replace("Value error, ", "").split())  # pydantic's words in typer's

"""The command line: one file a command, each parses, calls one function, renders and returns its status."""

import sys
from collections.abc import Sequence

from ddpdoctor.cli.errors import CANNOT_EXAMINE, UsageError, machine_error


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; an error of usage is one line on stderr and 2."""
    from ddpdoctor.cli.app import app, command_line_error

    try:
        status = app(list(arguments) or ["--help"], prog_name="ddpdoctor", standalone_mode=False)
    except (UsageError, command_line_error) as error:
        print(f"ddpdoctor: error: {_one_line(error)}", file=sys.stderr)
        return CANNOT_EXAMINE
    except OSError as failed:
        if (reason := machine_error(failed)) is None:
            raise
        print(f"ddpdoctor: error: {reason}", file=sys.stderr)
        return CANNOT_EXAMINE
    return status if isinstance(status, int) else 0


def _one_line(error: Exception) -> str:
    describe = getattr(error, "format_message", None)
    text = str(describe() if describe else error)
    return " ".join(text.replace("Value error, ", "").split())  # pydantic's words in typer's

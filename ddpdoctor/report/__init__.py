"""The formats: one file each, each a function from a cleaned Report to text."""

import sys
from enum import Enum
from importlib import import_module

from ddpdoctor.model import Report


class Format(str, Enum):
    """How a report can be written."""

    TERMINAL = "terminal"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"
    HTML = "html"


def render(report: Report, format: Format, *, verbose: bool = False, to_terminal: bool = False) -> str:
    """The report in one format, ending in a newline.

    Args:
        report: what :func:`ddpdoctor.redact.clean` returned; the formats escape only their own syntax.
        verbose: also what passing checks measured, and the details of information.
        to_terminal: the text goes to stdout, which may be a terminal with a width and colours.
    """
    if format is Format.TERMINAL:
        from ddpdoctor.report import terminal

        width = terminal.width_of_stdout() if to_terminal else terminal.DEFAULT_WIDTH
        colour = to_terminal and terminal.wants_colour(sys.stdout)
        return terminal.render(report, width, verbose, colour=colour)
    # Each format is a module of its name; a page brings figures that the others need not import.
    text: str = import_module(f"ddpdoctor.report.{format.value}").render(report)
    return text

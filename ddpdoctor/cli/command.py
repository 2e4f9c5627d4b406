"""Makes typer's commands of functions that take their options as one value."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from ddpdoctor.cli.errors import INTERRUPTED, UsageError
from ddpdoctor.cli.options import LINE, OPTION, STDOUT, JobOptions, ReportOptions
from ddpdoctor.cli.signals import stopped_by_signals
from ddpdoctor.redact import quote

_Options = TypeVar("_Options")
_Run = Callable[[_Options], int]
_ANNOTATED: Any = Annotated
_LAST = ("fail_on", "format", "output", "timeline", "verbose", "quiet")
"""The options that stand at the end of a command's help."""


def command(
    app: typer.Typer, options: type[_Options], if_stopped: str = "no process of it is left running"
) -> Callable[[_Run[_Options]], _Run[_Options]]:
    """Add a command, whose help is the function's docstring, and whose options are the fields of a dataclass.

    Args:
        if_stopped: what a user who stops it is told.
    """
    kind: dict[str, Any] = {"cls": _ReportCommand} if issubclass(options, ReportOptions) else {}
    if issubclass(options, JobOptions):
        kind = {"cls": _JobCommand, "context_settings": {"allow_interspersed_args": False}}

    def register(run: _Run[_Options]) -> _Run[_Options]:
        def invoke(**values: Any) -> int:
            try:
                with stopped_by_signals():
                    return run(options(**values))
            except KeyboardInterrupt:
                print(f"ddpdoctor: stopped; {if_stopped}", file=sys.stderr)
                return INTERRUPTED

        parameters = sorted(_parameters(options), key=lambda parameter: parameter.name in _LAST)
        invoke.__doc__ = run.__doc__
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(run.__name__, **kind)(invoke)
        return run

    return register


def _parameters(options: type) -> Iterator[inspect.Parameter]:
    """The fields of a dataclass as typer takes them, each with its type and its option."""
    types, signature = get_type_hints(options), inspect.signature(options).parameters
    for field in fields(options):
        annotation = _ANNOTATED[types[field.name], field.metadata[OPTION]]
        parameter = signature[field.name]
        yield parameter.replace(annotation=annotation, kind=parameter.KEYWORD_ONLY)


class _ReportCommand(TyperCommand):
    """A command whose ``--format`` and ``--output`` belong together by their order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give each format its output."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        rest = super().parse_args(ctx, args)
        ctx.params["output"] = outputs_of_formats(
            (str(option.name) for option in order), ctx.params["output"] or ()
        )
        return rest


def outputs_of_formats(options: Iterable[str], outputs: Iterable[str]) -> list[str]:
    """The output of each ``--format``, in their order: the ``--output`` that follows it, else stdout.

    Args:
        options: the names of all options, in the order in which they were given. An ``output`` before every
            ``format`` belongs to the first one.
        outputs: the values of ``--output``.

    Raises:
        UsageError: two outputs belong to one format.
    """
    values, formats = iter(outputs), 0
    files: list[str | None] = [None]
    for option in options:
        if option == "format":
            formats += 1
            files += [None] if formats > 1 else []
        elif option == "output":
            file = next(values)
            if files[-1] is not None:
                raise UsageError(f"--output {quote(file)} requires a --format of its own before it")
            files[-1] = file
    return [STDOUT if file is None else file for file in files]


class _JobCommand(_ReportCommand):
    """A command whose own options end where the script, the module or ``--`` begins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave the ``--`` of a whole command line with its words."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = list(ctx.params["words"] or ())
        if given[: len(given) - len(words)][-1:] == [LINE]:
            ctx.params["words"] = [LINE, *words]
        return rest

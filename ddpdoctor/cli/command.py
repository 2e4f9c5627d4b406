"""Makes typer's commands of dataclasses that hold their options, and of functions that take one."""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from ddpdoctor.cli.errors import INTERRUPTED, UsageError, stopped_by_signals
from ddpdoctor.cli.option import OPTION
from ddpdoctor.cli.options import LINE, STDOUT, JobOptions, ReportOptions
from ddpdoctor.redact import quote

_ANNOTATED: Any = Annotated
_WIDEST = 110
_WIDEST_NAMES = 26
"""Columns of an option's names; what it does stands under longer ones."""
_FEW = 8
"""Options that stand under one heading."""
_TYPE = re.compile(r" <(?:list\[([^\]]*)\]|str)>")
TOPICS = {
    "What to run": (
        "words subjects module nproc backend rehearse world_size trace flight_recorder checkpoint_dir"
    ),
    "How long": "budget batches full time_limit hang_after on_hang timeout quick",
    "Which checks": "select ignore fail_on no_run no_unreached",
    "What to report": "format output compare verbose quiet keep keep_files dump facts plot help",
    "Patches": "fix apply diff force",
    "Several nodes, as for torchrun": (
        "nodes max_restarts node_rank master_addr master_port standalone rdzv_backend rdzv_endpoint rdzv_id "
        "rdzv_conf"
    ),
}
"""The options of a command's help, by their names; all others stand behind these."""
_BY_ENDING = {".html": "html", ".json": "json", ".sarif": "sarif", ".xml": "junit"}
"""The format of a report, by its file."""
_NOTHING_LEFT, _GOES_ON = "no process of it is left running", "the job keeps running"
_IF_STOPPED = {"hang": _GOES_ON, "top": _GOES_ON, "clean": "some run folders may be left"}
"""What a user who stops a command is told."""


def command(app: typer.Typer, name: str, options: type, module: str) -> None:
    """Add a command, whose options are the fields of a dataclass, and whose help is its docstring. Its module, of
    ``ddpdoctor.cli``, has the function ``run_NAME``, and is imported when the command runs."""
    kind: type[TyperCommand] = _ReportCommand if issubclass(options, ReportOptions) else _Command
    settings: dict[str, Any] = {"max_content_width": _WIDEST}
    if issubclass(options, JobOptions):
        kind, settings = _JobCommand, {**settings, "allow_interspersed_args": False}

    def invoke(**values: Any) -> int:
        try:
            with stopped_by_signals():
                run = getattr(import_module(f"ddpdoctor.cli.{module}"), f"run_{name}")
                return int(run(options(**values)))
        except KeyboardInterrupt:
            print(f"ddpdoctor: stopped; {_IF_STOPPED.get(name, _NOTHING_LEFT)}", file=sys.stderr)
            return INTERRUPTED

    parameters = list(_parameters(options))
    invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(name, cls=kind, help=options.__doc__, context_settings=settings)(invoke)


def _parameters(options: type) -> Iterator[inspect.Parameter]:
    """The fields of a dataclass as typer takes them, each with its type and its option."""
    types, signature = get_type_hints(options), inspect.signature(options).parameters
    for field in fields(options):
        annotation = _ANNOTATED[types[field.name], field.metadata[OPTION]]
        parameter = signature[field.name]
        yield parameter.replace(annotation=annotation, kind=parameter.KEYWORD_ONLY)


class _Command(TyperCommand):
    """A command whose help has its options by topic, where they are many."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, those of a topic together."""
        topics: dict[str, list[tuple[str, str]]] = {topic: [] for topic in (*TOPICS, "Options")}
        topic_of = {name: topic for topic, names in TOPICS.items() for name in names.split()}
        if len(self.get_params(ctx)) <= _FEW:
            topic_of = {}
        order = [*topic_of, *(str(it.name) for it in self.get_params(ctx))]
        for parameter in sorted(
            self.get_params(ctx), key=lambda it: (it.param_type_name != "argument", order.index(str(it.name)))
        ):
            if (record := parameter.get_help_record(ctx)) is not None:
                names = _TYPE.sub(lambda it: f" [{it[1]}]" if "|" in (it[1] or "") else "", record[0])
                topics[topic_of.get(str(parameter.name), "Options")].append((names, record[1]))
        for topic, records in topics.items():
            if records:
                with formatter.section(topic):
                    formatter.write_dl(records, col_max=_WIDEST_NAMES)


class _ReportCommand(_Command):
    """A command whose ``--format`` and ``--output`` belong together by their order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give each format its output; where no format is given, each output that of its name."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        formats = [_BY_ENDING.get(Path(file).suffix) for file in given.get("output", ())]
        if "format" not in given and formats and None not in formats:
            return super().parse_args(ctx, [*(f"--format={it}" for it in formats), *args])
        rest = super().parse_args(ctx, args)
        names = [str(option.name) for option in order]
        ctx.params["output"] = outputs_of_formats(names, ctx.params["output"] or ())
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

"""The Python interface: ``ddpdoctor.check``, ``ddpdoctor.hang`` and ``ddpdoctor.explain`` return their report.

They print nothing and end nothing but what they started. The names here and the fields of :class:`Report` are stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from ddpdoctor import model
from ddpdoctor.cli.check import examined
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.explain import explain_output
from ddpdoctor.cli.hang import examine_job
from ddpdoctor.cli.options import LINE, CheckOptions, ExplainOptions, HangOptions
from ddpdoctor.cli.report_output import presentable
from ddpdoctor.cli.request import request_of
from ddpdoctor.model import Finding, Level
from ddpdoctor.progress import Progress
from ddpdoctor.report import Format, render
from ddpdoctor.text import did_you_mean

__all__ = ["Report", "UsageError", "check", "explain", "hang"]

Script: TypeAlias = "str | Path | Sequence[str]"
"""A script's path, or a launch line as a list of words."""
_KINDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
_PAGE = [Format.HTML]
"""What a notebook shows; makes the examination keep what a page has beside the findings."""


@dataclass(frozen=True)
class Report(model.Report):
    """What an examination found out; :mod:`ddpdoctor.model` documents its fields.

    ``print(report)`` shows it as a terminal does, and a notebook shows it as a page.
    """

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are failures or warnings, the root cause first."""
        return tuple(finding for finding in self.findings if finding.level is not Level.INFO)

    def render(self, format: str = "terminal", *, verbose: bool = False) -> str:
        """The report as ``--format`` writes it.

        Raises:
            ValueError: there is no such format.
        """
        return render(self, Format(format), verbose=verbose)

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        from ddpdoctor.report.html import notebook  # most reports are never shown as a page

        return notebook(self)


def check(
    script: Script | None = None,
    *args: object,
    nproc: int | None = None,
    module: bool = False,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    **options: Any,
) -> Report:
    """Examine this host, a live process group, and a training script, as ``ddpdoctor check`` does.

    Args:
        script: the script, as its path; or the words of a launch line. None examines the bundled trainer.
        args: what the script is given.
        nproc: ranks on this host.
        module: whether ``script`` is the name of a module.
        select: only these checks: codes, names, families, or ``host``, ``group``, ``run``.
        ignore: not these.
        options: further options of the command, by their names: ``budget``, ``batches``, ``full``,
            ``time_limit``, ``backend``, ``rehearse``, ``timeout``, ``hang_after``, ``keep`` and so on.

    Raises:
        UsageError: an option asks for what cannot be.
        TypeError: there is no such option, or its value is of another type.
    """
    _refuse_wrong({"nproc": nproc, "module": module, **options})
    if options.get("fail_on") is not None:
        options["fail_on"] = _level(options["fail_on"])
    words = _words(script, args)
    given = CheckOptions(
        words=words or None,
        module=module,
        nproc=nproc,
        select=_names("select", select),
        ignore=_names("ignore", ignore),
        format=_PAGE,
        quiet=True,
        **options,
    )
    with Progress(quiet=True) as progress:
        return _report(examined(request_of(given), progress), "check", *words)


def _refuse_wrong(options: Mapping[str, object]) -> None:
    """Name an argument that the command does not have, or whose value is not of its type."""
    types = get_type_hints(CheckOptions)
    for name, value in options.items():
        if name not in types:
            near = did_you_mean(name, types, "its documentation lists them")
            raise TypeError(f"check() has no argument {name!r}; {near}")
        kind = next((kind for kind in _KINDS if types[name] in (kind, kind | None)), None)
        if kind and value is not None and not isinstance(value, (kind, int) if kind is float else kind):
            raise TypeError(f"check(): {name}={value!r} is not {_KINDS[kind]}")


def _level(value: object) -> Level:
    level = next((level for level in (Level.FAIL, Level.WARN) if value in (level, level.value)), None)
    if level is None:
        raise TypeError(f"check(): fail_on={value!r} is neither 'fail' nor 'warn'")
    return level


def _names(argument: str, names: str | Iterable[str]) -> list[str] | None:
    if not isinstance(names, Iterable):
        raise TypeError(f"check(): {argument}={names!r} is not a list of codes or names")
    return ([names] if isinstance(names, str) else list(names)) or None


def _words(script: Script | None, args: Sequence[object]) -> list[str]:
    """The words of the command line."""
    if script is None:
        return []
    if not isinstance(script, str | Path | Sequence):
        raise TypeError(f"check(): {script!r} is not a script or a launch line")
    given = [str(script)] if isinstance(script, str | Path) else [LINE, *script]
    return [*given, *map(str, args)]


def hang(*subjects: int | str | Path, flight_recorder: str | Path | None = None) -> Report:
    """Find out why a running job hangs, as ``ddpdoctor hang`` does; the job keeps running.

    Args:
        subjects: the process id of the launcher or of ranks; or folders that ``--dump`` wrote. None: the job on this
            host.
        flight_recorder: a folder with dumps of PyTorch's flight recorder, instead.

    Raises:
        UsageError: there is nothing to look at, or several jobs run.
    """
    recorder = None if flight_recorder is None else str(flight_recorder)
    words = [str(subject) for subject in subjects]
    options = HangOptions(subjects=words or None, flight_recorder=recorder, format=_PAGE, quiet=True)
    return _report(examine_job(options), "hang", *words)


def explain(*files: str | Path) -> Report:
    """Find the root cause in the output of a job, as ``ddpdoctor explain FILE...`` does.

    Args:
        files: files and folders with the output.

    Raises:
        UsageError: they cannot be read, or hold no output.
    """
    if not files:
        raise UsageError("explain() requires a file")
    words = [str(file) for file in files]
    return _report(explain_output(ExplainOptions(subjects=words, format=_PAGE)), "explain", *words)


def _report(report: model.Report, *command: str) -> Report:
    shown = presentable(replace(report, command=command))
    return Report(**{field.name: getattr(shown, field.name) for field in fields(shown)})

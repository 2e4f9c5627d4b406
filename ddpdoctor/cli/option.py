"""What an option of a command may be: a number within bounds, a text, a flag, a list of codes, each as a field.

The fields are those of the dataclasses of ``options.py`` and ``run_options.py``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import typer

from ddpdoctor.model import Level

LONGEST = 7 * 24 * 3600.0
"""Seconds; nobody waits longer, and torch cannot count far more."""
OPTION = "typer"
"""The key of a field's metadata."""


def _field(default: Any, option: Any) -> Any:
    return field(default=default, metadata={OPTION: option})


def number(
    default: float | None,
    metavar: str,
    help: str,
    *names: str,
    least: float,
    most: float = math.inf,
    kind: type[int] | type[float] = int,
) -> Any:
    """An option that is a number between bounds."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number") from None
        if least <= value <= most:
            return value
        bounds = f"not between {least:g} and {most:g}" if math.isfinite(most) else f"less than {least:g}"
        raise typer.BadParameter(f"{text} is {bounds}")

    return _field(default, typer.Option(*names, metavar=metavar, help=help, parser=parse))


def seconds(default: float | None, help: str, least: float = 0.001) -> Any:
    return number(default, "SECONDS", help, least=least, most=LONGEST, kind=float)


def count(default: int | None, help: str, *names: str) -> Any:
    return number(default, "N", help, *names, least=1)


def text(metavar: str, help: str, *names: str, default: str | None = None, completion: Any = None) -> Any:
    return _field(default, typer.Option(*names, metavar=metavar, help=help, autocompletion=completion))


def choice(default: Enum, help: str) -> Any:
    return _field(default, typer.Option(help=help))


def flag(help: str, *names: str) -> Any:
    return _field(False, typer.Option(*names, help=help))


def words(metavar: str, help: str, default: Any = None, completion: Any = None) -> Any:
    return _field(default, typer.Argument(metavar=metavar, help=help, autocompletion=completion))


def codes(incomplete: str) -> list[tuple[str, str]]:
    """For the shell: the codes and names of checks that begin like the last of a list, and what is so where nothing
    is wrong."""
    from ddpdoctor import registry

    before, comma, last = incomplete.rpartition(",")
    checks = registry.all_checks() if last else ()  # of nothing, the shell completes files
    names = [(name, check.title) for check in checks for name in (check.code, check.name)]
    return [(before + comma + name, title) for name, title in names if name.lower().startswith(last.lower())]


def configs(incomplete: str) -> list[str]:
    """For the shell: the bundled configurations."""
    from ddpdoctor.job.trainer import bundled_configs

    return [name for name in bundled_configs() if name.startswith(incomplete)]


def level(default: Level | None, help: str) -> Any:
    """An option that is a level which may make the exit status 1."""

    def parse(text: str) -> Level:
        if text not in (Level.FAIL.value, Level.WARN.value):
            raise typer.BadParameter(f"{text!r} is neither 'fail' nor 'warn'")
        return Level(text)

    return _field(default, typer.Option(metavar="[fail|warn]", parser=parse, help=help, show_default=False))


def age(default: str, help: str) -> Any:
    """An option that is a length of time with its unit."""

    def parse(text: str) -> float:
        if (match := re.fullmatch(r"(\d{1,6})([smhd])|0", text)) is None:
            raise typer.BadParameter(f"{text!r} is not an age such as 30m, 12h or 7d")
        return int(match[1] or 0) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[match[2] or "s"]

    return _field(default, typer.Option(metavar="AGE", parser=parse, help=help, show_default=False))


@dataclass(frozen=True)
class NodeCount:
    """``--nnodes``: how many nodes."""

    least: int = 1
    most: int = 1

    @property
    def spare(self) -> int:
        """How many need not come."""
        return self.most - self.least

    @classmethod
    def parse(cls, text: str) -> NodeCount:
        """``3``, or as torchrun has it for an elastic job, ``2:3``; ValueError where it is neither."""
        least, colon, most = text.partition(":")
        count = cls(int(least), int(most if colon else least))
        if not 1 <= count.least <= count.most:
            raise ValueError
        return count


def nodes() -> Any:
    def parse(text: str) -> NodeCount:
        try:
            return NodeCount.parse(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is neither a number of nodes nor MIN:MAX") from None

    help = "Nodes, each with this command; MIN:MAX if elastic. [default: 1]"
    option = typer.Option("--nnodes", metavar="N", parser=parse, help=help, show_default=False)
    return _field(None, option)


def nproc() -> Any:
    help = "Ranks on this node. [default: from the configuration, if any; else one per GPU, or 2]"
    return count(None, help, "--nproc-per-node", "--nproc")


def backend() -> Any:
    return text("NAME", "nccl or gloo. [default: nccl with GPUs]")


def fail_on() -> Any:
    return level(None, "What makes the exit status 1. [default: warn]")


def quiet() -> Any:
    return flag("No progress on stderr.", "--quiet", "-q")


def output() -> Any:
    return text("FILE", "Write to this file instead of stdout.")


def formats() -> Any:
    return _field(None, typer.Option(help="May be repeated. [default: terminal]"))


def outputs() -> Any:
    return text("FILE", "File for the --format before it, else in the format of its ending; - is stdout.")

"""The options of the commands of ``runs``."""

# ruff: noqa: RUF009 - the functions that are called in dataclasses return fields

from dataclasses import MISSING, dataclass
from enum import Enum
from typing import Any

from ddpdoctor.cli import option


class RunFormat(str, Enum):
    """The formats of ``runs``."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


class Picture(str, Enum):
    """What ``runs plot`` draws."""

    CURVES = "curves"
    SCALING = "scaling"


LATEST = "latest"
"""The name of the run that began last."""


def _run() -> Any:
    return option.words("RUN", f"A name, the beginning of one, a folder, or {LATEST!r}.", LATEST)


@dataclass(frozen=True)
class RunsOptions:
    """What the commands of ``runs`` share."""

    runs_folder: str = option.text("FOLDER", "The folder with the runs.", "--folder", default="runs")


@dataclass(frozen=True)
class ListOptions(RunsOptions):
    """List the runs, oldest first."""

    format: RunFormat = option.choice(RunFormat.TABLE, "Format of the output.")
    output: str | None = option.output()


@dataclass(frozen=True)
class ShowOptions(ListOptions):
    """Show one run: its launch, what it reached, its configuration."""

    name: str = _run()


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ListOptions):
    """Set runs side by side: what they reached, how fast, and the settings in which they differ."""

    subjects: list[str] = option.words("RUN RUN...", "At least two.", MISSING)
    baseline: str | None = option.text(
        "RUN", "The run that counts as 1 x. [default: the last of one process and the same model]"
    )
    picture: str | None = option.text("FILE", "Draw their curves too: .png or .svg.", "--plot")


@dataclass(frozen=True)
class PlotOptions(RunsOptions):
    """Draw loss, learning rate, gradient norm and throughput; or how throughput grows with the ranks.

    The background is transparent, and the picture is readable on a light and on a dark page.
    """

    names: list[str] | None = option.words(
        "[RUN...]", f"Names, beginnings of names, folders, or {LATEST!r}. [default: all]"
    )
    output: str = option.text("FILE", "The picture: .png or .svg.", "--output", "-o", default="runs.svg")
    what: Picture = option.choice(Picture.CURVES, "What to draw.")

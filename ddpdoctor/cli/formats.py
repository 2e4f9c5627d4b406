"""Values that options of several commands take."""

from __future__ import annotations

from enum import Enum

from ddpdoctor.model import Level


class ReportFormat(str, Enum):
    """The formats of ``check``."""

    TERMINAL = "terminal"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


class PageFormat(str, Enum):
    """The formats of ``checks``."""

    TERMINAL = "terminal"
    JSON = "json"


class FailOn(str, Enum):
    """The least level that makes the exit status 1."""

    FAIL = Level.FAIL.value
    WARN = Level.WARN.value

"""What a script of tests/sick says, in comments, that is to be found in it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMMENT = re.compile(
    r"# expect: (?P<code>DD\d{3})(?: ranks (?P<ranks>last|[\d,-]+))?(?: \(of 2: (?P<pair>[\d,-]+)\))?"
    r"(?P<nowhere> nowhere)?"
)


@dataclass(frozen=True, order=True)
class Expected:
    """A finding: its check, the line that it names, the ranks."""

    code: str
    line: int | None
    ranks: tuple[int, ...]


def expectations(script: Path, world_size: int) -> list[Expected]:
    """What is to be found, from ``# expect: DD206 ranks 1,3-`` on the line to be named; no ranks: every rank.

    ``(of 2: 0-1)`` behind them says which ranks where there are two, of which neither has the majority.
    """
    return sorted(_expected(script.read_text(), world_size), key=str)


def _expected(text: str, world_size: int) -> Iterator[Expected]:
    for number, line in enumerate(text.splitlines(), 1):
        for found in _COMMENT.finditer(line):
            of_two = found["pair"] if world_size == 2 else None
            ranks = _ranks(of_two or found["ranks"] or "0-", world_size)
            yield Expected(found["code"], None if found["nowhere"] else number, ranks)


def _ranks(text: str, world_size: int) -> tuple[int, ...]:
    if text == "last":
        return (world_size - 1,)
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ranks += range(int(first), int(last) + 1 if last else world_size if dash else int(first) + 1)
    return tuple(ranks)


def first_of_each_check(scripts: Iterable[Path]) -> set[Path]:
    """Those that also run on two ranks, neither of which is in the majority; all others run on three."""
    return set({script.stem.partition("_")[0]: script for script in sorted(scripts, reverse=True)}.values())


def as_expected(finding: Any, script: Path) -> Expected:
    """A finding, to be compared with what was expected."""
    where = finding.where
    line = where.line if where and Path(where.file).name == script.name else None
    return Expected(finding.code, line, tuple(finding.ranks))


def differences(report: str, expected: Mapping[str, str], script: Path) -> list[str]:
    """What a report in JSON does not say of a script, or says beside it.

    Args:
        expected: the beginning of the headline of each finding above info, by code, and of remarks that have to be
            there. Where the script has a comment for the code, the finding has to name that line; else none.
    """
    try:
        findings: list[dict[str, Any]] = json.loads(report)["findings"]
    except ValueError:
        return ["no report"]
    lacking, beside = dict(expected), []
    for finding in findings:
        code, headline, line = finding["code"], finding["headline"], _line(finding["where"])
        marked = [f"{script.name}:{mark.line}" for mark in expectations(script, 1) if mark.code == code]
        if code in lacking and headline.startswith(lacking[code]) and line in (marked or [None]):
            del lacking[code]
        elif code in expected or finding["level"] != "info":
            beside.append(f"{code}: {headline} ({line or 'no line'})")
    return [f"{code} is not told" for code in lacking] + beside


def _line(where: dict[str, Any] | None) -> str | None:
    return f"{Path(where['file']).name}:{where['line']}" if where else None

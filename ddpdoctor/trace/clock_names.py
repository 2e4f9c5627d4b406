"""Folders that ranks name by the time, each by its own clock."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from time import gmtime, localtime, strftime

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import LogWriter
from ddpdoctor.trace.recording import Recording

_NUMBER = re.compile(r"\d+")
_MADE_WITHIN = 60
"""Seconds between the moment that a name tells and that at which its folder is made."""


@dataclass(frozen=True)
class ClockName:
    """A folder that has another name on each rank."""

    at: Where
    paths: Mapping[int, str]


def named_by_clocks(recordings: Mapping[int, Recording]) -> list[ClockName]:
    """The lines at which ranks make a folder, or open a log, under names that differ by the time alone."""
    lines: defaultdict[tuple[str, Where], dict[int, tuple[str, float]]] = defaultdict(dict)
    for rank, recording in recordings.items():
        for at, path, time in _made(recording):
            if at is not None:
                lines[recording.host, at][rank] = path, recording.clock + time
    return [
        ClockName(at, {rank: path for rank, (path, _) in made.items()})
        for (_, at), made in lines.items()
        if _differ_by_time(made)
    ]


def _made(recording: Recording) -> Iterator[tuple[Where | None, str, float]]:
    yield from ((event.at, event.path, event.time) for event in recording.files if event.action == "mkdir")
    yield from ((writer.at, writer.target, writer.time) for writer in recording.events(LogWriter))


def _differ_by_time(made: Mapping[int, tuple[str, float]]) -> bool:
    parts = {rank: PurePath(path).parts for rank, (path, _) in made.items()}
    if len({tuple(_NUMBER.sub("#", part) for part in of_rank) for of_rank in parts.values()}) > 1:
        return False
    rows = [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    differing = [row for row in rows if len(set(row.values())) > 1]
    return bool(differing) and all(
        _has_no_rank(row) and all(_tells(name, made[rank][1]) for rank, name in row.items())
        for row in differing
    )


def _has_no_rank(names: Mapping[int, str]) -> bool:
    numbers = {rank: [int(digits) for digits in _NUMBER.findall(name)] for rank, name in names.items()}
    columns = (dict(zip(numbers, column, strict=True)) for column in zip(*numbers.values(), strict=True))
    return not any(all(rank == it for rank, it in column.items()) for column in columns)


def _tells(name: str, when: float) -> bool:
    """Whether a name has the second of a moment just before: of its day, here or in UTC, or since 1970."""
    digits = "".join(_NUMBER.findall(name))
    return any(
        strftime("%H%M%S", moment) in digits or str(second) in digits
        for second in range(int(when) - _MADE_WITHIN, int(when) + 2)
        for moment in (localtime(second), gmtime(second))
    )

"""Folders that ranks name by the time, each by its own clock."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import LogWriter
from ddpdoctor.trace.recording import Recording

_NUMBER = re.compile(r"\d+")
_LEAST_DIGITS = 6
"""Of a name that tells a second: of a day, or since 1970."""


@dataclass(frozen=True)
class ClockName:
    """A folder that has another name on each rank."""

    at: Where
    paths: Mapping[int, str]


def named_by_clocks(recordings: Mapping[int, Recording]) -> list[ClockName]:
    """The lines at which ranks make a folder, or open a log, under names that differ by the time alone."""
    lines: defaultdict[tuple[str, Where], dict[int, str]] = defaultdict(dict)
    for rank, recording in recordings.items():
        for at, path in _made(recording):
            if at is not None:
                lines[recording.host, at][rank] = path
    return [ClockName(at, paths) for (_, at), paths in lines.items() if _differ_by_time(paths)]


def _made(recording: Recording) -> Iterator[tuple[Where | None, str]]:
    yield from ((event.at, event.path) for event in recording.files if event.action == "mkdir")
    yield from ((writer.at, writer.target) for writer in recording.events(LogWriter))


def _differ_by_time(paths: Mapping[int, str]) -> bool:
    if len(set(paths.values())) < 2:
        return False
    parts = {rank: PurePath(path).parts for rank, path in paths.items()}
    if len({tuple(_NUMBER.sub("#", part) for part in of_rank) for of_rank in parts.values()}) > 1:
        return False
    rows = (dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True))
    return all(_is_time(row) for row in rows if len(set(row.values())) > 1)


def _is_time(names: Mapping[int, str]) -> bool:
    """Whether these names, which differ in their numbers, tell a second, and no number is the rank."""
    numbers = {rank: [int(digits) for digits in _NUMBER.findall(name)] for rank, name in names.items()}
    columns = (dict(zip(numbers, column, strict=True)) for column in zip(*numbers.values(), strict=True))
    tells_second = sum(map(len, _NUMBER.findall(next(iter(names.values()))))) >= _LEAST_DIGITS
    return tells_second and not any(all(rank == it for rank, it in column.items()) for column in columns)

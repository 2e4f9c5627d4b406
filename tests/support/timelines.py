"""Reads a timeline back, and holds it against the rules of Chrome's trace events."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any


def events_of(file: Path) -> list[dict[str, Any]]:
    """The events of a file that keeps to the rules."""
    events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    _is_valid(events)
    return events


def _is_valid(events: list[dict[str, Any]]) -> None:
    """What Chrome's format asks of every event, and Perfetto of slices on one track."""
    named: set[tuple[int, int]] = set()
    ends: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for event in events:
        assert event["ph"] in ("M", "X", "i")
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert all(value is None or isinstance(value, str | int | float) for value in event["args"].values())
        track = event["pid"], event["tid"]
        if event["ph"] == "M":
            named.add(track)
            continue
        assert track in named
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] in ("t", "p", "g")
            continue
        open_ends = ends[track]
        while open_ends and open_ends[-1] <= event["ts"]:
            open_ends.pop()
        assert event["dur"] >= 0
        assert not open_ends or event["ts"] + event["dur"] <= open_ends[-1], "slices of one track cross"
        open_ends.append(event["ts"] + event["dur"])

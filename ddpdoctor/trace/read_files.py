"""Reads what a process recorded of checkpoints, other files, loggers and what it printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.trace.files import FileEvent, Load, LogWriter, Printed, Save, StateLoad

_Event = dict[str, Any]


class FilesReader:
    """The area of :mod:`ddpdoctor.trace.files`."""

    def __init__(self, file: Path) -> None:
        self._saves: dict[int, Save] = {}
        self._loads: dict[int, Load] = {}
        self._state_loads: list[StateLoad] = []
        self._files: list[FileEvent] = []
        self._loggers: list[LogWriter] = []
        self._printed: list[Printed] = []

    def on_save_begin(self, event: _Event, at: Where | None) -> None:
        """torch.save is about to be entered."""
        entries = tuple(event["entries"])
        self._saves[event["id"]] = Save(
            event["path"], at, event["t"], entries=entries, prefix=event["prefix"]
        )

    def on_save_end(self, event: _Event, at: Where | None) -> None:
        """It returned."""
        if known := self._saves.get(event["id"]):
            self._saves[event["id"]] = replace(known, end=event["t"], size=event["size"])

    def on_load_begin(self, event: _Event, at: Where | None) -> None:
        """torch.load is about to be entered."""
        self._loads[event["id"]] = Load(event["path"], at, event["t"], map_location=event["map_location"])

    def on_load_end(self, event: _Event, at: Where | None) -> None:
        """It returned, or raised."""
        if known := self._loads.get(event["id"]):
            self._loads[event["id"]] = replace(
                known,
                end=event["t"],
                entries=tuple(event.get("entries", ())),
                prefix=event.get("prefix"),
                devices=tuple(event.get("devices", ())),
                numbers=event.get("numbers", {}),
                states=tuple(event.get("states", ())),
                error=event.get("error"),
            )

    def on_state_load(self, event: _Event, at: Where | None) -> None:
        """A load_state_dict returned, or raised."""
        plain = ("name", "strict", "matched", "wrapper", "load", "error")
        self._state_loads.append(
            StateLoad(
                **{name: event[name] for name in plain},
                kind=event["what"],
                at=at,
                time=event["t"],
                missing=tuple(event["missing"]),
                unexpected=tuple(event["unexpected"]),
            )
        )

    def on_file(self, event: _Event, at: Where | None) -> None:
        """The script is about to change a file or folder."""
        self._files.append(FileEvent(event["action"], event["path"], event["t"], at))

    def on_logger(self, event: _Event, at: Where | None) -> None:
        """A logger was opened."""
        self._loggers.append(LogWriter(event["what"], event["target"], at, event["t"]))

    def on_printed(self, event: _Event, at: Where | None) -> None:
        """A line was printed or logged soon after a pass that trained nothing."""
        self._printed.append(Printed(event["t"], at, event["text"]))

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording."""
        return {
            "saves": tuple(self._saves.values()),
            "loads": tuple(self._loads.values()),
            "state_loads": tuple(self._state_loads),
            "files": tuple(self._files),
            "log_writers": tuple(self._loggers),
            "printed": tuple(self._printed),
        }

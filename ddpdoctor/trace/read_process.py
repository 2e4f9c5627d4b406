"""Reads what a process recorded of itself: its groups, its notes, how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.text import uncoloured
from ddpdoctor.trace.process import Device, Exit, GroupEvent, Note, Raised, RaisedFrame


class ProcessReader:
    """The area of :mod:`ddpdoctor.trace.process`."""

    def __init__(self, file: Path) -> None:
        self._header: dict[str, Any] = {}
        self._joining: dict[str, Any] = {}
        self._groups: list[GroupEvent] = []
        self._notes: list[Note] = []
        self._devices: list[Device] = []
        self._facts: dict[str, Any] = {}
        self._raised: Raised | None = None
        self._exit: Exit | None = None

    def on_start(self, event: dict[str, Any], at: Where | None) -> None:
        """The first event of every record."""
        self._header = event

    def on_group_joining(self, event: dict[str, Any], at: Where | None) -> None:
        """init_process_group was called."""
        self._joining = event
        self._groups.append(
            GroupEvent("joining", event["t"], at, arguments=event["arguments"], environ=event["environ"])
        )

    def on_group_refused(self, event: dict[str, Any], at: Where | None) -> None:
        """init_process_group raised."""
        self._groups[-1] = GroupEvent(
            "refused",
            event["t"],
            at,
            arguments=self._joining["arguments"],
            environ=self._joining["environ"],
            error=event["error"],
        )

    def on_group_init(self, event: dict[str, Any], at: Where | None) -> None:
        """init_process_group returned."""
        self._facts |= {"threads": event["threads"], "cpus": event.get("cpus")}
        self._groups[-1] = GroupEvent(
            "init",
            event["t"],
            at,
            event["backend"],
            event["rank"],
            event["size"],
            arguments=event["arguments"],
            environ=self._joining["environ"],
        )

    def on_group_making(self, event: dict[str, Any], at: Where | None) -> None:
        """new_group was called."""
        ranks, local = tuple(event["ranks"]), event["local"]
        self._groups.append(GroupEvent("making", event["t"], at, size=len(ranks), ranks=ranks, local=local))

    def on_group_new(self, event: dict[str, Any], at: Where | None) -> None:
        """new_group returned."""
        made, ranks = self._groups[-1] if self._groups else None, tuple(event["ranks"])
        local = made is not None and made.action == "making" and self._groups.pop().local
        self._groups.append(
            GroupEvent(
                "new_group", event["t"], at, rank=event["rank"], size=event["size"], ranks=ranks, local=local
            )
        )

    def on_group_destroy(self, event: dict[str, Any], at: Where | None) -> None:
        """destroy_process_group is about to be entered."""
        if event["whole"]:
            self._groups.append(GroupEvent("destroy", event["t"], at))

    def on_raised(self, event: dict[str, Any], at: Where | None) -> None:
        """An exception left the main module, or the function of a process."""
        frames = tuple(RaisedFrame(*frame) for frame in event["frames"])
        message, causes = uncoloured(event["message"]), tuple(event["causes"])
        self._raised = Raised(event["type"], message, event["t"], frames, at, causes)

    def on_exit(self, event: dict[str, Any], at: Where | None) -> None:
        """The script is over."""
        if self._exit is None or self._exit.how == "returned":
            self._exit = Exit(event["how"], event["t"], event["status"], at)

    def on_note(self, event: dict[str, Any], at: Where | None) -> None:
        """The recorder could not do something."""
        self._notes.append(Note(event["topic"], event["text"]))

    def on_device_set(self, event: dict[str, Any], at: Where | None) -> None:
        """torch.cuda.set_device was called."""
        self._add_device("set", event, at)

    def on_device_use(self, event: dict[str, Any], at: Where | None) -> None:
        """Something was placed on a device for the first time."""
        self._add_device("use", event, at)

    def _add_device(self, how: str, event: dict[str, Any], at: Where | None) -> None:
        self._devices.append(
            Device(event["index"], how, at, not event["out_of_range"], event["gpu"], event["count"])
        )

    def on_device_note(self, event: dict[str, Any], at: Where | None) -> None:
        """A rehearsal cannot do something faithfully."""
        self._notes.append(Note("rehearsal", event["text"]))

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording."""
        argv = self._header.get("argv") or [""]
        return {
            "pid": self._header.get("pid", 0),
            "host": self._header.get("host", ""),
            "torch": self._header.get("torch", ""),
            "script": argv[0],
            "started": self._header.get("t", 0.0),
            "clock": self._header.get("began", 0) / 1e9 - self._header.get("t", 0.0),
            "environ": self._header.get("environ", {}),
            "groups": tuple(self._groups),
            "devices": tuple(self._devices),
            "raised": self._raised,
            "exit": self._exit,
            "facts": self._facts,
            "notes": tuple(self._notes),
        }

"""Reads what a process recorded of its data: samplers, loaders, passes, workers and splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.trace.data import Loader, Pass, Sampler, Split, Worker
from ddpdoctor.trace.numbers import Numbers, read_numbers

_SAMPLER_FIELDS = {one.name for one in fields(Sampler)}
_Event = dict[str, Any]


class DataReader:
    """The area of :mod:`ddpdoctor.trace.data`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._samplers: dict[int, Where | None] = {}
        self._made: dict[int, _Event] = {}
        self._loaders: dict[int, _Loader] = {}
        self._passes: dict[int, _Pass] = {}
        self._subsets: list[tuple[_Event, Where | None]] = []
        self._workers: dict[int, Worker] = {}
        self._pids: dict[int, int] = {}

    def on_sampler_made(self, event: _Event, at: Where | None) -> None:
        """A sampler was constructed."""
        self._samplers[event["made"]] = at

    def on_loader_made(self, event: _Event, at: Where | None) -> None:
        """A DataLoader was constructed."""
        self._made[event["made"]] = event

    def on_loader(self, event: _Event, at: Where | None) -> None:
        """A DataLoader was iterated for the first time."""
        self._loaders[event["index"]] = _Loader(event, at)

    def on_pass(self, event: _Event, at: Where | None) -> None:
        """A pass drew its first indices."""
        self._passes[event["id"]] = _Pass(event, at)

    def on_pass_batch(self, event: _Event, at: Where | None) -> None:
        """The loop took a batch."""
        if one := self._passes.get(event["id"]):
            one.drawn = event["n"]
            if event.get("d") is not None and one.drawn == len(one.content) + 1:
                one.content.append(event["d"])
                one.samples += event.get("s", ())

    def on_pass_wrong(self, event: _Event, at: Where | None) -> None:
        """Other indices were drawn than had been foreseen."""
        if one := self._passes.get(event["id"]):
            one.begun["indices"] = one.begun["batches"] = None

    def on_pass_end(self, event: _Event, at: Where | None) -> None:
        """A pass ended."""
        if one := self._passes.get(event["id"]):
            one.ended = event

    def on_subset(self, event: _Event, at: Where | None) -> None:
        """A Subset was constructed."""
        self._subsets.append((event, at))

    def on_workers(self, event: _Event, at: Where | None) -> None:
        """Workers were started for a pass."""
        self._pids |= dict.fromkeys(event["pids"], event["id"])

    def on_worker_begin(self, event: _Event, at: Where | None) -> None:
        """A worker is about to load its first sample; told by itself."""
        self._workers[event["pid"]] = Worker(-1, event["worker"], event["seeds"])

    def on_worker_loaded(self, event: _Event, at: Where | None) -> None:
        """A worker has loaded some of its first samples."""
        if known := self._workers.get(event["pid"]):
            samples = (*known.samples, *event["samples"])
            self._workers[event["pid"]] = replace(known, samples=samples, drew=tuple(event["drew"]))

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording."""
        return {
            "loaders": tuple(self._loader(one) for one in self._loaders.values()),
            "passes": tuple(self._pass(one) for one in self._passes.values()),
            "splits": tuple(self._splits()),
        }

    def _sampler(self, described: Mapping[str, Any] | None) -> Sampler | None:
        if described is None:
            return None
        known = {name: value for name, value in described.items() if name in _SAMPLER_FIELDS}
        return Sampler(**known, at=self._samplers.get(described.get("made", -1)))

    def _loader(self, one: _Loader) -> Loader:
        names = ("index", "dataset", "samples", "streams", "batch_size", "drop_last", "workers", "content")
        plain = {name: one.event[name] for name in names}
        sampler = self._sampler(one.event["sampler"])
        return Loader(**plain, at=one.at, sampler=sampler, replaced=self._replaced(one.event))

    def _replaced(self, loader: _Event) -> str | None:
        """The sampler given to an earlier loader over this dataset that was never iterated, where another draws."""
        iterated = {one.event["made"] for one in self._loaders.values()}
        wrapped = {made for one in self._loaders.values() for made in one.event["holds"]}
        for made in self._made.values():
            earlier = made["made"] < loader["made"] and made["made"] not in iterated | wrapped
            if earlier and made["given"] and made["dataset"] == loader["data"]:
                return str(made["given"])
        return None

    def _pass(self, one: _Pass) -> Pass:
        begun, ended = one.begun, one.ended or {}
        indices = begun["indices"] if begun["indices"] is not None else ended.get("indices")
        return Pass(
            loader=begun["loader"],
            number=begun["number"],
            at=one.at,
            begin=begun["t"],
            end=ended.get("t"),
            sampler=self._sampler(begun["sampler"]),
            indices=self._numbers(indices),
            batches=begun["batches"] if begun["batches"] is not None else ended.get("batches"),
            drawn=ended.get("taken", one.drawn),
            ended=ended.get("how", "open"),
            training=ended.get("steps", begun["steps"]) > begun["steps"],
            content=tuple(one.content),
            samples=tuple(one.samples),
            wait=ended.get("wait", 0.0),
            workers=self._workers_of(begun),
        )

    def _workers_of(self, begun: _Event) -> tuple[Worker, ...]:
        """Those that began in this pass; with persistent workers, that is the first one."""
        own = [pid for pid, number in self._pids.items() if number == begun["id"]]
        return tuple(
            replace(self._workers[pid], loader=begun["loader"]) for pid in own if pid in self._workers
        )

    def _numbers(self, described: Any) -> Numbers | None:
        return read_numbers(self._file, described)

    def _splits(self) -> list[Split]:
        together: dict[Any, list[tuple[_Event, Where | None]]] = defaultdict(list)
        for event, at in self._subsets:
            by_hand = event["group"] is None
            together[("over", event["over"]) if by_hand else event["group"]].append((event, at))
        parted = (parts for parts in together.values() if len(parts) > 1)
        return [self._split(parts) for parts in parted]

    def _split(self, parts: list[tuple[_Event, Where | None]]) -> Split:
        found = [(event, self._numbers(event["indices"])) for event, _ in parts]
        known = [(event, indices) for event, indices in found if indices is not None]
        return Split(
            at=parts[0][1],
            samples=parts[0][0]["samples"],
            parts=tuple(indices for _, indices in known),
            loaders=tuple(self._loader_of(event["part"]) for event, _ in known),
        )

    def _loader_of(self, part: int) -> int | None:
        return next((i for i, one in self._loaders.items() if part in one.event["parts"]), None)


@dataclass
class _Loader:
    event: _Event
    at: Where | None


@dataclass
class _Pass:
    begun: _Event
    at: Where | None
    ended: _Event | None = None
    drawn: int = 0
    content: list[str] = field(default_factory=list)
    samples: list[str | None] = field(default_factory=list)

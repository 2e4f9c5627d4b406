"""What the ranks measured, put together: medians with their spread, speed-ups, shares, bandwidths; and what limits the
scaling. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median, quantiles
from typing import Any

from ddpdoctor.bench.setting import Setting
from ddpdoctor.text import duration, plural, share, size

PHASES = ("data", "forward", "backward", "optimizer")
"""Of a step, in the order in which the ranks time them."""
GOOD = 0.9
"""Efficiency from which on there is little to gain."""


@dataclass(frozen=True)
class Spread:
    """A median and the middle half around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least two values."""
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high)


@dataclass(frozen=True)
class Scaling:
    """One number of ranks."""

    ranks: int
    step: Spread
    """Seconds of the slowest rank of each step."""
    steps: int
    """How many were timed."""
    samples_per_second: float
    """Of all ranks."""
    speed_up: float
    efficiency: float


@dataclass(frozen=True)
class Split:
    """Where the seconds of a step go, as the mean over the ranks of each one's median."""

    ranks: int
    data: float
    forward: float
    backward: float
    """What computing the gradients takes; where there are several ranks, without averaging them."""
    exposed: float
    """What averaging the gradients adds to that, waiting for slower ranks included."""
    optimizer: float
    other: float = 0.0
    """What a step takes longer on its slowest rank than these parts do on average."""

    @property
    def total(self) -> float:
        """Seconds of a step."""
        return self.data + self.forward + self.backward + self.exposed + self.optimizer + self.other

    @property
    def compute(self) -> float:
        """Seconds of the parts that one rank has alone."""
        return self.forward + self.backward


@dataclass(frozen=True)
class Collective:
    """One operation and size."""

    operation: str
    bytes: int
    seconds: Spread | None
    """Of the slowest rank of each call; None where the backend does not have the operation."""
    algorithm_bandwidth: float | None = None
    """Bytes a second: the size by the time."""
    bus_bandwidth: float | None = None
    """Bytes a second through the busiest link, which does not depend on the number of ranks."""
    unsupported: str | None = None


@dataclass(frozen=True)
class Results:
    """A benchmark."""

    setting: Setting
    cpus: float
    torch: str
    parameters: int
    gradient_bytes: int
    weak: tuple[Scaling, ...]
    splits: tuple[Split, ...]
    collectives: tuple[Collective, ...]
    busy: float = 0.0
    """CPUs that others used before it began."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def put_together(
    setting: Setting,
    measured: Mapping[int, Sequence[Mapping[str, Any]]],
    cpus: float,
    torch: str,
    busy: float,
) -> Results:
    """The results from what each rank of each number of ranks wrote."""
    steps = {ranks: [measurement["steps"] for measurement in each] for ranks, each in measured.items()}
    scaling, most = _scaling(setting, steps), measured[setting.nproc]
    return Results(
        setting=setting,
        cpus=cpus,
        torch=torch,
        parameters=most[0]["parameters"],
        gradient_bytes=most[0]["gradient_bytes"],
        weak=scaling,
        splits=tuple(map(_split, steps.keys(), steps.values(), scaling)),
        collectives=tuple(map(_collective, zip(*(it.get("collectives", ()) for it in most), strict=True))),
        busy=busy,
    )


def _scaling(setting: Setting, timed: Mapping[int, Sequence[Mapping[str, Any]]]) -> tuple[Scaling, ...]:
    scalings: list[Scaling] = []
    for ranks, each in timed.items():
        step = _step(each)
        speed = setting.batch_size * ranks / step.median
        alone = scalings[0].samples_per_second / scalings[0].ranks if scalings else speed / ranks
        steps = len(each[0]["synced"])
        scalings.append(Scaling(ranks, step, steps, speed, speed / alone, speed / alone / ranks))
    return tuple(scalings)


def _step(each: Sequence[Mapping[str, Any]]) -> Spread:
    """Seconds of a step, each as long as its slowest rank needs."""
    together = zip(*(rank["synced"] for rank in each), strict=True)
    return Spread.of([max(sum(phases) for phases in ranks) for ranks in together])


def _phase(each: Sequence[Mapping[str, Any]], kind: str, phase: str) -> float:
    at = PHASES.index(phase)
    return fmean(median(step[at] for step in rank[kind]) for rank in each)


def _split(ranks: int, each: Sequence[Mapping[str, Any]], scaling: Scaling) -> Split:
    """The parts of a step, which add up to its median."""
    synced = {phase: _phase(each, "synced", phase) for phase in PHASES}
    apart = _phase(each, "unsynced", "backward") if each[0]["unsynced"] else synced["backward"]
    backward = min(apart, synced["backward"])
    exposed = synced["backward"] - backward
    split = Split(ranks, synced["data"], synced["forward"], backward, exposed, synced["optimizer"])
    step = scaling.step.median
    if step >= split.total:
        return replace(split, other=step - split.total)
    parts = {name: part * step / split.total for name, part in asdict(split).items() if name != "ranks"}
    return Split(ranks, **parts)


def _collective(rows: Sequence[Mapping[str, Any]]) -> Collective:
    """One operation and size, from the row of each rank."""
    name, length = rows[0]["operation"], rows[0]["bytes"]
    refused = next((row["unsupported"] for row in rows if "unsupported" in row), None)
    if refused is not None:
        return Collective(name, length, None, unsupported=refused)
    seconds = Spread.of([max(calls) for calls in zip(*(row["seconds"] for row in rows), strict=True)])
    algorithm = length / seconds.median
    return Collective(name, length, seconds, algorithm, algorithm * bus_factor(name, len(rows)))


def bus_factor(operation: str, ranks: int) -> float:
    """What makes an algorithm's bandwidth that of the bus, as nccl-tests define it."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if operation == "broadcast" else (ranks - 1) / ranks


# -- what limits the scaling ------------------------------------------------------------------------------------


def limit(results: Results) -> str:
    """What the step of the most ranks spends longer on than that of one, with its numbers."""
    single, most = results.splits[0], results.splits[-1]
    if most.ranks == 1:
        return f"one rank spends {_parts(single)}; more ranks were not measured."
    reached = results.weak[-1].efficiency
    costs = {
        _averaging(results, most): most.exposed,
        _computing(results, single, most): most.compute - single.compute,
        f"loading data, which takes {duration(most.data)} a step, with one rank "
        f"{duration(single.data)}": most.data - single.data,
        f"the optimizer's step, which takes {duration(most.optimizer)}, with one rank "
        f"{duration(single.optimizer)}: it reads and writes every parameter, so ranks compete for "
        "memory": most.optimizer - single.optimizer,
    }
    cause = max(costs, key=lambda text: costs[text])
    headline = f"{plural(most.ranks, 'rank')} reach {share(reached)} of perfect weak scaling"
    if reached >= GOOD:
        return f"little limits it: {headline}. The largest cost: {cause}."
    return f"{headline}. What limits it: {cause}."


def _parts(split: Split) -> str:
    largest = max(("data", "forward", "backward", "optimizer"), key=lambda name: float(getattr(split, name)))
    return f"{share(getattr(split, largest) / split.total)} of its step in {largest}"


def _averaging(results: Results, most: Split) -> str:
    return (
        f"averaging {size(results.gradient_bytes)} of gradients, of which {duration(most.exposed)} are not hidden "
        f"behind backward, {share(most.exposed / most.total)} of a step; larger batches per rank, or gradient "
        f"accumulation under no_sync, reduce it"
    )


def _computing(results: Results, single: Split, most: Split) -> str:
    wanted = most.ranks * results.setting.threads
    why = "they compete for memory bandwidth or for CPUs that other processes use"
    if results.setting.backend == "nccl":
        why = "the GPUs or the CPUs that feed them slow each other down"
    elif wanted > results.cpus:
        threads = plural(results.setting.threads, "thread")
        why = f"{most.ranks} ranks of {threads} share {plural_cpus(results.cpus)}"
    longer = f"{most.compute / single.compute:.1f} times as long as for one rank"
    return f"computing, for forward and backward take {longer}; {why}"


def plural_cpus(cpus: float) -> str:
    """``2 CPUs``, or ``1.5 CPUs`` where a quota says so."""
    return plural(int(cpus), "CPU") if cpus == int(cpus) else f"{cpus:.1f} CPUs"

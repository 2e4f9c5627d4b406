"""A sentence on what limits the scaling. Pure."""

from __future__ import annotations

from ddpdoctor.bench.results import Results, Split
from ddpdoctor.text import duration, plural, share, size

GOOD = 0.9
"""Efficiency from which on there is little to gain."""


def limit(results: Results) -> str:
    """What the step of the most ranks spends longer on than that of one, with its numbers."""
    single, most = results.splits[0], results.splits[-1]
    if most.ranks == 1:
        return f"one rank spends {_parts(single)}; more ranks were not measured."
    reached = results.weak[-1].efficiency
    costs = {
        _averaging(results, most): most.exposed,
        _computing(results, single, most): most.compute - single.compute,
        _loading(single, most): most.data - single.data,
        _updating(single, most): most.optimizer - single.optimizer,
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


def _loading(single: Split, most: Split) -> str:
    return f"loading data, which takes {duration(most.data)} a step, with one rank {duration(single.data)}"


def _updating(single: Split, most: Split) -> str:
    return (
        f"the optimizer's step, which takes {duration(most.optimizer)}, with one rank {duration(single.optimizer)}: "
        f"it reads and writes every parameter, so ranks compete for memory"
    )


def plural_cpus(cpus: float) -> str:
    """``2 CPUs``, or ``1.5 CPUs`` where a quota says so."""
    return plural(int(cpus), "CPU") if cpus == int(cpus) else f"{cpus:.1f} CPUs"

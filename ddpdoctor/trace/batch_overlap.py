"""What ranks share of the batches that no DataLoader gives them: told by their inputs, and by what cuts their parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Origin, Program
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.trace.dataset_draws import OrderDraw, draw_before_part, shared_seed
from ddpdoctor.trace.recording import Recording

_MOST_LATER = 8
"""Batches by which one rank is behind another; ranks that begin far apart, and each read all, are further."""
_ENOUGH = 4
"""For how many times as many batches ranks have to be that far apart."""
_ONLY_SUMS = {"all_reduce", "reduce", "barrier"}
"""Collectives that give no rank a batch of another one."""


@dataclass(frozen=True)
class Lag:
    """One rank feeds what another one fed before."""

    ahead: int
    behind: int
    batches: int
    """How many forwards later."""
    shared: int
    """How many inputs were seen on both."""
    forward: Forward
    read: Where | None
    """The line that cuts the batch out of the data at a place that depends on the rank."""


def lag(recordings: Mapping[int, Recording]) -> Lag | None:
    """Two ranks of which one feeds the other's inputs a few batches later; None where they feed inputs of their own."""
    fed = {rank: _distinct(recording) for rank, recording in recordings.items()}
    places: dict[str | None, dict[int, int]] = {}
    for rank, row in fed.items():
        for place, forward in enumerate(row):
            places.setdefault(forward.input, {})[rank] = place
    for ahead, row in fed.items():
        for behind, later in places[row[0].input].items() if row else ():
            shared = min(len(row), len(fed[behind]) - later)
            if 0 < later <= min(_MOST_LATER, shared // _ENOUGH) and [
                forward.input for forward in row[:shared]
            ] == [forward.input for forward in fed[behind][later : later + shared]]:
                return Lag(ahead, behind, later, shared, row[0], _read(row[0], recordings[ahead].script))
    return None


def order_of_each_rank(recordings: Mapping[int, Recording]) -> tuple[OrderDraw, Where] | None:
    """The line by which each rank puts samples in an order of its own before it takes its part, and the backward of
    a loss that is made of it; None where none is seen."""
    lines = {
        backward.at: (backward.time, recording.script)
        for recording in recordings.values()
        for step in recording.steps
        for backward in step.backwards
        if backward.at
    }
    for at, (time, script) in lines.items():
        draw = draw_before_part(_losses(at, script))
        if draw is None or draw.stream is None:
            continue
        seed = shared_seed(recordings, [draw.stream], time)
        if seed is None or seed.value is None:
            return draw, at
    return None


def _distinct(recording: Recording) -> list[Forward]:
    """The training forwards from the first one on, until one was not seen or has an input for the second time."""
    row: dict[str, Forward] = {}
    for number, step in enumerate(recording.steps):
        if step.index != number or any(it.operation not in _ONLY_SUMS for it in step.collectives):
            break
        for forward in (it for it in step.forwards if it.grad):
            if forward.input is None or forward.input in row:
                return list(row.values())
            row[forward.input] = forward
    return list(row.values())


def _losses(at: Where, script: str) -> Iterator[Expression]:
    for call in Program.holding(at, script).calls_at(at):
        yield from filter(None, (call.owner, call.argument(0, "loss")))


def _read(forward: Forward, script: str) -> Where | None:
    at = forward.at
    for call in Program.holding(at, script).calls_at(at) if at else ():
        for part in (it for argument in call.arguments for it in argument.made_of()):
            bounds = part.node.slice if isinstance(part.node, ast.Subscript) else None
            begin = bounds.lower if isinstance(bounds, ast.Slice) else None
            if begin is not None and Origin.RANK in part.inner(begin).origins.kinds:
                return part.where
    return None

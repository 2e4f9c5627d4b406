"""How a verdict says where ranks are: one line for each distinct state, and all stacks as one tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddpdoctor.blame.place import Kind, place_of
from ddpdoctor.blame.standstill import Doing, Standstill
from ddpdoctor.blame.tree import lines, merge
from ddpdoctor.model import Evidence, Where
from ddpdoctor.text import shorten
from ddpdoctor.trace.odd import by_state
from ddpdoctor.trace.verdict.standing import Standing, stuck_worker

_LEFT = {
    "returned": "came to the end of its script",
    "exit": "ended by sys.exit",
    "os._exit": "ended by os._exit",
}
_SELF = {
    Kind.LOADER: "waits for the next batch of its DataLoader",
    Kind.INPUT: "waits for input on its standard input",
    Kind.CHILD: "waits for a process that it started",
    Kind.SLEEP: "sleeps",
}


def line_of(where: Where | None) -> str:
    """``train.py:12``; empty where there is none."""
    return f"{where.file}:{where.line}" if where else ""


def at(where: Where | None) -> str:
    """`` at train.py:12``; empty where there is none."""
    return f" at {line_of(where)}" if where else ""


def doing(one: Standing) -> str:
    """What a rank does, for a sentence whose subject it is: ``waits in Queue.get at train.py:12``."""
    if one.left:
        return _LEFT.get(one.left, "has ended")
    if one.stopped:
        return f"is stopped, by SIGSTOP or a debugger{at(one.where)}"
    if one.place is None:
        return _unseen(one)
    return f"{_verb(one)}{at(one.where)}{_worker(one)}"


def _unseen(one: Standing) -> str:
    if one.process is None:
        return "was not seen"
    return "has ended" if one.process.doing is Doing.GONE else "did not show its stack"


def _verb(one: Standing) -> str:
    place, process = one.place, one.process
    assert place is not None
    if place.waits:
        return f"waits in {place.what}"
    if place.kind in _SELF:
        return _SELF[place.kind]
    if place.blocks:
        told = process is not None and place.kind is Kind.READ and process.call not in ("", place.what)
        call = f", in {process.call}" if process is not None and told else ""
        return f"waits in {place.what}{call}"
    if process is not None and process.doing is Doing.COMPUTES:
        return "works"
    if process is not None and process.doing is Doing.DISK:
        return "reads or writes"
    return "is"


def _worker(one: Standing) -> str:
    """Where the DataLoader worker is for which the rank waits."""
    worker = stuck_worker(one) if one.place and one.place.kind is Kind.LOADER else None
    found = place_of(worker) if worker else None
    return f"; worker process {worker.pid} is{at(found.where)}" if worker and found else ""


def states(crowd: Mapping[int, Standing], ranks: Iterable[int] = ()) -> tuple[Evidence, ...]:
    """What each rank does, equal states once."""
    chosen = tuple(ranks) or tuple(crowd)
    return by_state({rank: doing(crowd[rank]) for rank in chosen})


def evidence(crowd: Mapping[int, Standing], standstill: Standstill) -> tuple[Evidence, ...]:
    """Where all ranks are, their stacks as a tree, and what could not be seen."""
    stacks = {rank: one.process.stack for rank, one in crowd.items() if one.process and one.process.stack}
    workers = [
        Evidence(f"worker process {worker.pid}:\n" + "\n".join(map(str, worker.stack)), (rank,))
        for rank, one in crowd.items()
        if one.place and one.place.kind is Kind.LOADER and (worker := stuck_worker(one))
    ]
    tree = "stacks of all ranks, innermost call last:\n" + "\n".join(lines(merge(stacks)))
    unseen = {rank: one.process.unseen for rank, one in crowd.items() if one.process and one.process.unseen}
    return (
        *states(crowd),
        *((Evidence(tree),) if stacks else ()),
        *workers[:1],
        *by_state({rank: shorten(why, 200) for rank, why in unseen.items()}),
        *(Evidence(one) for one in standstill.unseen),
    )


def waiting_in(crowd: Mapping[int, Standing], ranks: Iterable[int]) -> str:
    """What most of some ranks wait in: ``barrier at train.py:12``."""
    first = next((crowd[rank] for rank in ranks if crowd[rank].waits), None)
    return f"{first.place.what}{at(first.where)}" if first and first.place else "a collective"


def they(ranks: Iterable[int], one: str, several: str) -> str:
    """A verb in the number of its subject."""
    return one if len(set(ranks)) == 1 else several


def for_seconds(standstill: Standstill) -> str:
    """`` for 12 s``, where somebody had watched."""
    return f" for {standstill.seconds:.0f} s" if standstill.seconds >= 1 else ""

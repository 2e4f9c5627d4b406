"""The ranks that others wait for and that wait for no rank: blocked, at work, gone, or out of sight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpdoctor.blame.place import Kind, place_of
from ddpdoctor.blame.standstill import Doing, Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.model import Confidence, Level, Where
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.verdict.standing import Standing, stuck_worker
from ddpdoctor.trace.verdict.words import doing, evidence, for_seconds, they, waiting_in

_WORKS = (Doing.COMPUTES, Doing.DISK, Doing.SLEEPS)
_FIX = {
    Kind.LOADER: "see what the worker does at the line named here; DataLoader(..., timeout=60) raises where a batch "
    "does not come\nDataLoader(..., num_workers=0) runs the same code in the rank itself, where a traceback shows it",
    Kind.LOCK: "see who holds what it waits for: a thread, or a process, that waits for this rank in turn\n"
    "acquire(timeout=60), get(timeout=60) raise where nobody comes",
    Kind.CHILD: "subprocess.run(..., timeout=60) raises where the process does not end",
    Kind.READ: "give the call a time limit, as socket.settimeout(60) does, and see who should write",
    Kind.STORE: "see which rank should set that key, under that very name; a store with a timeout raises where none "
    "does:\nstore.wait([key], timedelta(seconds=60))",
    Kind.INPUT: "take the question out of the script: the ranks of a job have no terminal",
}
_STOPPED = (
    "kill -CONT PID goes on with it; look who sent SIGSTOP: a debugger, a shell's Ctrl-Z, a job manager"
)
_LOOK = (
    "see what it does at the line named here, and bring every rank to the same collectives in the same order"
)


def is_blocked(one: Standing) -> bool:
    """Whether it waits for something that is no rank."""
    if one.stopped:
        return True
    if one.left or one.place is None or one.place.waits:
        return False
    if one.place.blocks:
        return True
    process = one.process
    if process is None or process.doing in (Doing.COMPUTES, Doing.DISK):
        return False
    in_a_sample = one.place.fetching and process.doing is Doing.SLEEPS
    return in_a_sample or (process.doing is Doing.WAITS and process.stands)


def blocked(crowd: Mapping[int, Standing], ranks: Sequence[int], standstill: Standstill) -> Verdict:
    """Ranks that wait for a lock, a pipe, a worker or a person (DD307)."""
    first = crowd[ranks[0]]
    waiting = [rank for rank, one in crowd.items() if one.waits]
    others = (
        f", while {ranks_phrase(waiting)} {they(waiting, 'waits', 'wait')} in {waiting_in(crowd, waiting)}"
    )
    kind = first.place.kind if first.place else Kind.ELSEWHERE
    return Verdict(
        "DD307",
        f"{ranks_phrase(ranks)} {_several(first, ranks)}" + (others if waiting else ""),
        why=(
            f"{ranks_phrase(waiting).capitalize()} {they(waiting, 'is', 'are')} in a collective, which ends when "
            f"{ranks_phrase(ranks)} {they(ranks, 'joins', 'join')} it. What {they(ranks, 'it waits', 'they wait')} "
            "for is no rank, and nothing in the job brings it."
            if waiting
            else "No rank is in a collective: all wait for something that is no rank, and nothing in the job brings it."
        ),
        fix=_STOPPED if first.stopped else _FIX.get(kind, _LOOK),
        culprits=tuple(ranks),
        waiting=tuple(waiting),
        where=_where(first),
        evidence=evidence(crowd, standstill),
    )


def _several(first: Standing, ranks: Sequence[int]) -> str:
    """What they do, as the first of them does it."""
    said = doing(first)
    if len(ranks) == 1:
        return said
    verb, _, rest = said.partition(" ")
    return f"{ {'waits': 'wait', 'is': 'are', 'sleeps': 'sleep', 'works': 'work'}.get(verb, verb) } {rest}"


def _where(one: Standing) -> Where | None:
    """The line of the worker's code for which it waits; else its own."""
    worker = stuck_worker(one) if one.place and one.place.kind is Kind.LOADER else None
    place = place_of(worker) if worker else None
    return place.where if place and place.where else one.where


def busy(crowd: Mapping[int, Standing], ranks: Sequence[int], trace: Trace) -> Verdict:
    """Ranks that do something else than to wait (DD306); or of which no more is known than where they are (DD301)."""
    standstill = trace.standstill or Standstill()
    first = crowd[ranks[0]]
    waiting = [rank for rank, one in crowd.items() if one.waits]
    works = first.process is not None and first.process.doing in _WORKS
    return Verdict(
        "DD306" if works else "DD301",
        f"{ranks_phrase(ranks)} {_several(first, ranks)}{for_seconds(standstill) if works else ''}, while "
        f"{ranks_phrase(waiting)} {they(waiting, 'waits', 'wait')} in {waiting_in(crowd, waiting)}",
        why=f"A collective ends when every rank of its group has joined it. {ranks_phrase(waiting).capitalize()} "
        f"{they(waiting, 'gives', 'give')} up at the timeout of the process group, "
        f"{_timeout(standstill)}, and {they(waiting, 'its error speaks', 'their errors speak')} of the collective and "
        "not of this line.",
        fix="do the work before the launch, or a part of it on every rank; or give the group the time it takes:\n"
        "dist.init_process_group(timeout=timedelta(hours=2))"
        if works
        else _LOOK,
        culprits=tuple(ranks),
        waiting=tuple(waiting),
        where=first.where,
        evidence=evidence(crowd, standstill),
        level=Level.WARN if works and trace.out_of_time else Level.FAIL,
    )


def _timeout(standstill: Standstill) -> str:
    return "10 or 30 minutes" if standstill.timeout is None else f"{standstill.timeout:.0f} s"


def unseen(crowd: Mapping[int, Standing], ranks: Sequence[int], standstill: Standstill) -> Verdict:
    """Ranks of which there is neither a stack nor a record (DD301)."""
    waiting = [rank for rank, one in crowd.items() if one.waits]
    return Verdict(
        "DD301",
        f"{ranks_phrase(waiting)} {they(waiting, 'waits', 'wait')} in {waiting_in(crowd, waiting)} for "
        f"{ranks_phrase(ranks)}, which {they(ranks, 'was', 'were')} not seen on this host",
        why=f"{ranks_phrase(ranks).capitalize()} {they(ranks, 'was', 'were')} never started, "
        f"{they(ranks, 'has', 'have')} ended, or {they(ranks, 'runs', 'run')} on another host, where "
        f"{they(ranks, 'it', 'they')} may be anywhere.",
        fix="look at their own output; where they run on other hosts, keep what each host shows, and judge it together:"
        "\nddpdoctor hang --dump FOLDER     # on every host, into a folder that they share\nddpdoctor hang FOLDER",
        culprits=tuple(ranks),
        waiting=tuple(waiting),
        where=next((crowd[rank].where for rank in waiting), None),
        evidence=evidence(crowd, standstill),
        confidence=Confidence.LIKELY,
    )


def none_late(crowd: Mapping[int, Standing], standstill: Standstill) -> Verdict:
    """Every rank is in the same collective (DD301)."""
    waiting = [rank for rank, one in crowd.items() if one.waits]
    what = waiting_in(crowd, waiting)
    return Verdict(
        "DD301",
        f"all of {ranks_phrase(waiting)} wait in {what}, and none is late",
        why="Every rank has come, and none gets an answer, so data does not pass between them: a firewall, the wrong "
        "network interface, GPUs that cannot reach each other. Or they came to it with tensors of different sizes, "
        "or in the groups that they share in different orders, which stacks do not show.",
        fix="ddpdoctor check     # tries the same path with a live group\nNCCL_DEBUG=INFO names interface and "
        "transport; NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME choose another",
        waiting=tuple(waiting),
        where=next((crowd[rank].where for rank in waiting), None),
        evidence=evidence(crowd, standstill),
        confidence=Confidence.LIKELY,
    )

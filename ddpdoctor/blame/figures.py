"""A job that stands still, as figures: who waits for whom, and the stacks of all ranks in one tree."""

from collections.abc import Iterator, Mapping, Sequence

from ddpdoctor.blame.causes import Cause
from ddpdoctor.blame.frames import Frame, Node, is_of_script, merge
from ddpdoctor.blame.hang_analysis import HangAnalysis
from ddpdoctor.blame.rank_state import RankState
from ddpdoctor.blame.wording import all_do, doing, who
from ddpdoctor.figures import Figure, Section, StackFrame, Stacks, Waiter, WaitsFor
from ddpdoctor.text import plural, ranks_phrase

MOST_STATES = 12
"""Of a graph; in a job where more ranks differ, no picture is clear."""
_MOST_CALLS = 300


def hang_section(job: HangAnalysis, cause: Cause | None) -> Section:
    """What the hang looked like."""
    culprits = cause.culprits if cause else ()
    processes = {rank: state.process for rank, state in job.ranks.items() if state.process}
    stacks = {rank: process.stack for rank, process in processes.items() if process.stack}
    figures: list[Figure] = [waits_for(job, cause)] if job.ranks else []
    if stacks:
        figures.append(merged_stacks(stacks, culprits))
    return Section("Where the job stands still", figures=tuple(figures))


def waits_for(job: HangAnalysis, cause: Cause | None) -> WaitsFor:
    """The wait-for graph, ranks in an equal state as one node, culprits last."""
    culprits = set(cause.culprits) if cause else set()
    states: dict[tuple[bool, str], list[int]] = {}
    for rank, state in job.ranks.items():
        states.setdefault((rank in culprits, doing(state) + _group(job, state)), []).append(rank)
    ordered = sorted(states, key=lambda state: len(states[state]), reverse=True)
    shown = _most(ordered)
    nodes = tuple(_waiter(job, cause, state, states, shown) for state in shown)
    left = len(ordered) - len(shown)
    note = f"{plural(left, 'more state')} of ranks are not shown." if left else ""
    return WaitsFor("Who waits for whom", nodes, note)


def _group(job: HangAnalysis, state: RankState) -> str:
    """`` in the group of ranks 0-1``, where a rank waits in a collective of fewer than all."""
    group = state.group
    return f", in the group of {ranks_phrase(group)}" if group and set(group) < set(job.ranks) else ""


def _most(by_size: Sequence[tuple[bool, str]]) -> list[tuple[bool, str]]:
    """The states to show: those of culprits first of all, then those of most ranks."""
    to_blame = [state for state in by_size if state[0]][: MOST_STATES // 2]
    others = [state for state in by_size if not state[0]][: MOST_STATES - len(to_blame)]
    return [*others, *to_blame]


def _waiter(
    job: HangAnalysis,
    cause: Cause | None,
    state: tuple[bool, str],
    states: Mapping[tuple[bool, str], Sequence[int]],
    shown: Sequence[tuple[bool, str]],
) -> Waiter:
    ranks = tuple(states[state])
    sentence = all_do(ranks, job.ranks[ranks[0]]) + _group(job, job.ranks[ranks[0]])
    late = {rank for waiting in ranks for rank in _late(job, waiting)}
    if not late and cause and not state[0] and not set(ranks).isdisjoint(cause.waiting):
        late = set(cause.culprits)
    targets = tuple(i for i, it in enumerate(shown) if it != state and not late.isdisjoint(states[it]))
    return Waiter(ranks_phrase(ranks), sentence[len(who(ranks)) :].strip(), targets, state[0])


def _late(job: HangAnalysis, rank: int) -> Iterator[int]:
    """The ranks for which one waits."""
    for meeting in job.graph.stands.get(rank, ()):
        yield from job.graph.late[meeting]


def merged_stacks(stacks: Mapping[int, Sequence[Frame]], culprits: Sequence[int] = ()) -> Stacks:
    """The stacks by rank as one tree."""
    calls = list(_calls(merge(stacks), 0, frozenset(culprits)))
    left = len(calls) - _MOST_CALLS
    return Stacks(
        "Stacks of all ranks",
        tuple(calls[:_MOST_CALLS]),
        f"{plural(left, 'more frame')} are not shown." if left > 0 else "",
    )


def _calls(node: Node, depth: int, culprits: frozenset[int]) -> Iterator[StackFrame]:
    branches = len(node.calls) > 1 or depth == 0
    for frame, child in sorted(node.calls.items(), key=lambda pair: pair[1].ranks):
        marked = bool(culprits) and culprits.issuperset(child.ranks)
        ranks = ranks_phrase(child.ranks) if branches else ""
        inner = depth + 1 if branches else depth
        yield StackFrame(inner, str(frame), ranks, is_of_script(frame), marked)
        yield from _calls(child, inner, culprits)
    if node.ends and node.calls:
        yield StackFrame(depth + 1, "here", ranks_phrase(node.ends), False, culprits.issuperset(node.ends))

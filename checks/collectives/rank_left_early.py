from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Where
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.farewell import issued
from ddpdoctor.trace.verdict import claim


class RankLeftEarly(Check):
    """A rank ended its script while others still wait for it.

    What it finds:
        A rank whose script came to its end, with exit status 0, before the last collective of the others: those
        fail because the connection is closed, or wait.

    Why it matters:
        A launcher takes status 0 for success and looks for the fault elsewhere. The ranks that report errors are
        the healthy ones.

    Example:
        if rank != 0:
            return                    # nothing left to do for this rank
        dist.barrier()                # rank 0 waits for all of them

    Fix:
        Bring every rank to the same last collective, and let all leave after it:
            dist.barrier()
            dist.destroy_process_group()
    """

    code = "DD305"
    name = "rank-left-early"
    family = Family.COLLECTIVES
    title = "no rank leaves before the others are done with it"
    explained_by = ("DD005", "DD106", "DD204", "DD214", "DD225", "DD302", "DD303", "DD308", "DD309")

    def examine_run(self, trace: Trace) -> Judgement:
        hung = claim(self, trace)
        if hung:
            return hung
        late = [one for one in trace.ranks if one.lost_at_end]
        if late:
            return [self._cut_off(late)]
        recordings = trace.recordings()
        waiting = _waiting(trace)
        if not waiting:
            if trace.broken:
                raise NotMeasured(trace.broken)
            return Passed(f"{ranks_phrase(recordings)} left together")
        begun = min(_since(one) for one in waiting)
        ended = [one for one in trace.ranks if _ended_by_itself(one)]
        if not any(_left_before(one, begun, trace) for one in ended):
            raise NotMeasured(trace.broken or "no rank had left")
        # Who ended later, and without the call in which the others failed, was only slower on the same way.
        calls = min(_calls(one) for one in waiting)
        left = [one for one in ended if _left_before(one, begun, trace) or _calls(one) < calls]
        return [self._left(left, waiting)]

    def _cut_off(self, late: list[RankTrace]) -> Finding:
        who = ranks_phrase(one.rank for one in late)
        raised = late[0].recording.raised if late[0].recording else None
        return self.info(
            f"{who} lost a peer in the last collective, which that peer had finished",
            why="Every rank made the same calls. gloo closes the connections of a rank that has come to its end, also "
            "while another still reads the last bytes of the same collective.",
            fix="dist.barrier()                  # on every rank, after the last work\ndist.destroy_process_group()",
            ranks=tuple(one.rank for one in late),
            where=raised.at if raised else None,
        )

    def _left(self, left: list[RankTrace], waiting: list[RankTrace]) -> Finding:
        gone, still = [one.rank for one in left], [one.rank for one in waiting]
        return self.fail(
            f"{ranks_phrase(gone)} ended with status 0 while {ranks_phrase(still)} still waited for "
            f"{'it' if len(gone) == 1 else 'them'}",
            why="A collective needs every rank of its group. The connection of a rank that has left is closed, so "
            "the others fail in their next collective, or wait in it until the timeout.",
            fix="dist.barrier()                  # on every rank, after the last work\ndist.destroy_process_group()",
            ranks=tuple(gone),
            where=_where(left[0], waiting[0]),
            evidence=(
                *(Evidence(_how(one), (one.rank,)) for one in left),
                *(Evidence(_in_what(one), (one.rank,)) for one in waiting),
            ),
        )


def _waiting(trace: Trace) -> list[RankTrace]:
    """The ranks that lost a peer, or stand in a collective of a run that stopped."""
    lost = [one for one in trace.ranks if one.failure and one.failure.of_a_victim and not one.finished]
    stopped = [one for one in trace.ranks if trace.timed_out and not trace.out_of_time and not one.finished]
    return lost or stopped


def _since(one: RankTrace) -> float:
    """When it failed, or did something last."""
    seen = one.recording
    if seen is None:
        return 0.0
    return seen.raised.time if seen.raised else seen.last


def _ended_by_itself(one: RankTrace) -> bool:
    seen = one.recording
    if seen is None or seen.exit is None or seen.raised or seen.exit.status or one.exit_code:
        return False
    return seen.exit.how != "shortened"


def _left_before(one: RankTrace, time: float, trace: Trace) -> bool:
    ended = one.recording.exit if one.recording else None
    return ended is not None and (ended.time <= time or trace.timed_out)


def _calls(one: RankTrace) -> int:
    return issued(one.recording) if one.recording else -1


def _where(left: RankTrace, waiting: RankTrace) -> Where | None:
    """Where it left, where that is a line of the script's; else where the others wait for it."""
    seen = left.recording
    if seen and seen.exit and seen.exit.at:
        return seen.exit.at
    other = waiting.recording
    return other.raised.at if other and other.raised else None


def _how(one: RankTrace) -> str:
    assert one.recording is not None
    assert one.recording.exit is not None
    how = one.recording.exit.how
    return (
        "came to the end of its script"
        if how == "returned"
        else f"ended by {'sys.exit' if how == 'exit' else how}"
    )


def _in_what(one: RankTrace) -> str:
    seen = one.recording
    if seen and seen.raised and seen.raised.at:
        return f"lost its peer at line {seen.raised.at.line} of {seen.raised.at.file}"
    return "did not come to its end"

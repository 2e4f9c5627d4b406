from collections.abc import Mapping

from ddpdoctor.blame.causes import EndedEarly
from ddpdoctor.blame.wording import cause_fields, doing, others_wait, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Confidence, Evidence, Family, Finding, Judgement, Passed, Where
from ddpdoctor.recorder.events.training import Backward
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.exit_disconnect import issued
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.standstill_check import StandstillCheck

_FIX = "dist.barrier()                  # on every rank, after the last work\ndist.destroy_process_group()"


class RankLeftEarly(StandstillCheck):
    """A rank ended its script while others still wait for it.

    What it finds:
        A rank whose script came to its end, with exit status 0, before the last collective of the others: those
        fail because the connection is closed, or wait. Also where the script catches that error, so that the job ends
        as a success.

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

    def examine_ended(self, trace: Trace) -> Judgement:
        late = [one for one in trace.ranks if one.lost_at_end]
        if late:
            return [self._cut_off(late)]
        recordings = trace.recordings()
        waiting = _waiting(trace)
        if not waiting:
            if trace.broken:
                raise NotMeasured(trace.broken)
            unheard = _unheard(recordings)
            if unheard:
                return [self._unheard(recordings, unheard)]
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
            fix=_FIX,
            ranks=tuple(one.rank for one in late),
            where=raised.at if raised else None,
        )

    @reports(EndedEarly)
    def _ended(self, cause: EndedEarly) -> Finding:
        return self.fail(
            f"{who(cause.culprits)} {doing(cause.state)} with status 0, and {others_wait(cause, 'still wait')}",
            why="A collective needs every rank of its group. A launcher takes 0 for success, so nothing ends the "
            "others before the timeout of the process group.",
            fix=_FIX,
            **cause_fields(cause),
        )

    def _left(self, left: list[RankTrace], waiting: list[RankTrace]) -> Finding:
        gone, still = [one.rank for one in left], [one.rank for one in waiting]
        return self.fail(
            f"{ranks_phrase(gone)} ended with status 0 while {ranks_phrase(still)} still waited for "
            f"{'it' if len(gone) == 1 else 'them'}",
            why="A collective needs every rank of its group. The connection of a rank that has left is closed, so "
            "the others fail in their next collective, or wait in it until the timeout.",
            fix=_FIX,
            ranks=tuple(gone),
            where=_where(left[0], waiting[0]),
            evidence=(
                *(Evidence(_how(one), (one.rank,)) for one in left),
                *(Evidence(_in_what(one), (one.rank,)) for one in waiting),
            ),
        )

    def _unheard(self, seen: Mapping[int, Recording], unheard: Mapping[int, Backward]) -> Finding:
        cut = next(iter(unheard.values()))
        gone, still = [rank for rank in seen if rank not in unheard], ranks_phrase(unheard)
        return self.fail(
            f"{ranks_phrase(gone)} ended with status 0 before the last backward of {still}, which failed unheard",
            why=f"The script caught the error of {still} and ended with status 0, so its launcher takes the job for a "
            f"success. What ended {ranks_phrase(gone)} early may have been caught in the same way.",
            fix="except Exception:\n    traceback.print_exc()\n    sys.exit(1)    # or let it end the script",
            ranks=tuple(gone),
            where=cut.at,
            evidence=tuple(
                Evidence(f"{plural(len(one.backwards), 'backward')} in all", (rank,))
                for rank, one in seen.items()
            ),
            confidence=Confidence.LIKELY,
        )


def _unheard(seen: Mapping[int, Recording]) -> dict[int, Backward]:
    """The ranks whose last backward averaged nothing, though it was to, since the others had left; none failed."""
    if any(one.step_count > len(one.steps) or _is_special(one) for one in seen.values()):
        return {}
    found = {rank: cut for rank, one in seen.items() if (cut := _cut_backward(one))}
    gone = [one for rank, one in seen.items() if rank not in found]
    least = min((len(seen[rank].backwards) for rank in found), default=0)
    left = all(
        len(one.backwards) < least and all(_has_left(one, cut) for cut in found.values()) for one in gone
    )
    return found if gone and left else {}


def _is_special(one: Recording) -> bool:
    """Whether it may end before the others, by Join or since its run was cut short."""
    return any(step.joined for step in one.steps) or (one.exit is not None and one.exit.how == "shortened")


def _cut_backward(one: Recording) -> Backward | None:
    """The last one, where all before it averaged, and it did not."""
    trailing = one.trailing
    if trailing is None or len(trailing.backwards) != 1 or not one.steps:
        return None
    asked = any(forward.grad and forward.synced and not forward.around for forward in trailing.forwards)
    usual = all(backward.reduced for step in one.steps for backward in step.backwards)
    cut = trailing.backwards[0]
    return cut if asked and usual and not cut.reduced else None


def _has_left(one: Recording, cut: Backward) -> bool:
    """Whether it had left when that backward ended."""
    left = [event.time for event in one.groups if event.action == "destroy"]
    left += [one.exit.time] if one.exit else []
    return bool(left) and min(left) <= cut.time + cut.seconds


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

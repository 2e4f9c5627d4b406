import math
from collections.abc import Mapping, Sequence

from ddpdoctor.blame.causes import EndedEarly
from ddpdoctor.blame.wording import doing, others_wait, verb, who
from ddpdoctor.check import Confidence, Evidence, Finding, Judgement, NotMeasured, Passed, Where, reports
from ddpdoctor.program import Program
from ddpdoctor.recorder.events.training import Backward
from ddpdoctor.text import by_state, plural, ranks_phrase
from ddpdoctor.trace import RankTrace, Recording, Trace, shown_at
from ddpdoctor.trace.gloo import issued
from ddpdoctor.trace.lines import JobLines
from ddpdoctor.trace.recorded_job import HangCheck


class RankLeftEarly(HangCheck):
    """A rank ended its script while others still wait for it.

    What it finds:
        A rank whose script ended with exit status 0 before the last collective of the others, which fail because the
        connection is closed, or hang. Also where the script catches that error, so that the job ends as a success.

    Why it matters:
        A collective needs every rank of its group. The connections of a rank that has ended are closed, so the others
        fail in their next collective, or wait in it until the timeout. For a launcher, exit status 0 is a success, and
        the ranks that report errors are the healthy ones.

    Example:
        if rank != 0:
            return                    # nothing left to do for this rank
        dist.barrier()                # rank 0 waits for all of them

    Fix:
        Call the same last collective on every rank, and end after it:
            dist.barrier()
            dist.destroy_process_group()
    """

    code = "DD305"
    title = "no rank ends while the others still need it"
    explained_by = (
        *("DD005", "DD011", "DD315", "DD106", "DD204", "DD214", "DD225"),
        *("DD302", "DD303", "DD308", "DD309"),
    )

    def examine_ended(self, trace: Trace) -> Judgement:
        late = [rank for rank in trace.ranks if rank.lost_at_end]
        if late:
            return [self._cut_off(late)]
        recordings, waiting = trace.recordings(), _waiting(trace)
        if not waiting:
            trace.require_end()
            if failed := _failed_in_last_backward(recordings):
                return [self._caught_error(recordings, failed)]
            return Passed(f"{ranks_phrase(recordings)} left together")
        begun = min(_waits_since(rank) for rank in waiting)
        ended = [rank for rank in trace.ranks if _ended_by_itself(rank)]
        if not any(_left_before(rank, begun, trace) for rank in ended):
            raise NotMeasured(trace.broken or "no rank had left")
        # A rank that ended later, and without the call in which the others failed, was only slower.
        calls = min(_calls(rank) for rank in waiting)
        left = [rank for rank in ended if _left_before(rank, begun, trace) or _calls(rank) < calls]
        return [self._left(left, waiting, trace)]

    def _cut_off(self, late: list[RankTrace]) -> Finding:
        raised = late[0].recording.raised if late[0].recording else None
        return self.info(
            f"{ranks_phrase(rank.rank for rank in late)} lost a peer in the last collective, which that peer had "
            "finished",
            why="Every rank made the same calls. gloo closes the connections of a rank whose script has ended, even "
            "while another rank still reads the last bytes of the same collective.",
            ranks=tuple(rank.rank for rank in late),
            where=raised.at if raised else None,
        )

    @reports(EndedEarly)
    def _ended_early(self, cause: EndedEarly) -> Finding:
        where, waits = cause.where, tuple[Evidence, ...]()
        if cause.state.left_at is None:
            where, waits = _beside_the_wait(_returned(cause.where), cause.where)
        return self.fail(
            f"{who(cause.culprits)} {doing(cause.state)} with status 0, and {others_wait(cause, 'still wait')}",
            where=where,
            evidence=(*cause.states, *waits),
        )

    def _left(self, left: list[RankTrace], waiting: list[RankTrace], trace: Trace) -> Finding:
        ranks = tuple(rank.rank for rank in left)
        where, waits = _where(trace.recorded, ranks, waiting[0])
        return self.fail(
            f"{ranks_phrase(ranks)} ended with status 0 while {ranks_phrase(rank.rank for rank in waiting)} still "
            f"waited for {verb(ranks, 'it', 'them')}",
            ranks=ranks,
            where=where,
            evidence=(
                *(Evidence(_how_it_ended(rank), (rank.rank,)) for rank in left),
                *(Evidence(_how_it_waited(rank), (rank.rank,)) for rank in waiting),
                *waits,
            ),
        )

    def _caught_error(self, recordings: Mapping[int, Recording], failed: Mapping[int, Backward]) -> Finding:
        left, others = tuple(rank for rank in recordings if rank not in failed), ranks_phrase(failed)
        at = next(iter(failed.values())).at
        catches = _swallowed_at(recordings, left, at)
        early = f"What ended {ranks_phrase(left)} early may have been caught in the same way."
        if catches:
            early = f"Before that, {ranks_phrase(left)} came to the same except."
        return self.fail(
            f"{ranks_phrase(left)} ended with status 0 before the last backward of {others}, whose "
            "exception the script caught",
            why=f"The script ended with status 0 after the exception of {others}, so for its "
            f"launcher the job succeeded. {early}",
            fix="except Exception:\n    traceback.print_exc()\n    sys.exit(1)    # or do not catch it",
            ranks=left,
            where=catches or at,
            evidence=(
                *by_state(recordings, lambda it: f"{plural(len(it.backwards), 'backward')} in all"),
                *(shown_at("the others failed", at) if catches else ()),
            ),
            confidence=Confidence.LIKELY,
        )


def _failed_in_last_backward(recordings: Mapping[int, Recording]) -> dict[int, Backward]:
    """The ranks whose last backward should have averaged and did not, because the others had left; no script failed."""
    if any(it.step_count > len(it.steps) or _may_end_early(it) for it in recordings.values()):
        return {}
    failed = {rank: last for rank, recording in recordings.items() if (last := _failed_backward(recording))}
    gone = [recording for rank, recording in recordings.items() if rank not in failed]
    fewest = min((len(recordings[rank].backwards) for rank in failed), default=0)
    left = all(
        len(recording.backwards) < fewest
        and all(_left_at(recording) <= it.time + it.seconds for it in failed.values())
        for recording in gone
    )
    return failed if gone and left else {}


def _may_end_early(recording: Recording) -> bool:
    """Whether it may end before the others, by Join or because its run was cut short."""
    shortened = recording.exit is not None and recording.exit.how == "shortened"
    return shortened or any(step.joined for step in recording.steps)


def _failed_backward(recording: Recording) -> Backward | None:
    """The last one, where all before it averaged, and it did not."""
    trailing = recording.trailing
    if trailing is None or len(trailing.backwards) != 1:
        return None
    synced = any(forward.grad and forward.synced and not forward.around for forward in trailing.forwards)
    usual = all(backward.reduced for step in recording.steps for backward in step.backwards)
    last = trailing.backwards[0]
    return last if synced and usual and not last.reduced else None


def _left_at(recording: Recording) -> float:
    """When it destroyed its process group, which closes its connections, or ended; infinite where it did not."""
    times = [event.time for event in recording.group_events("destroy")]
    return min([*times, recording.exit.time] if recording.exit else times, default=math.inf)


def _waiting(trace: Trace) -> list[RankTrace]:
    """The ranks that lost a peer, or that are in a collective of a run that hung."""
    unfinished = [rank for rank in trace.ranks if not rank.finished]
    lost = [rank for rank in unfinished if rank.failure and rank.failure.of_a_victim]
    return lost or (unfinished if trace.timed_out and not trace.out_of_time else [])


def _waits_since(rank: RankTrace) -> float:
    """When it failed, or did something last."""
    recording = rank.recording
    if recording is None:
        return 0.0
    return recording.raised.time if recording.raised else recording.last


def _ended_by_itself(rank: RankTrace) -> bool:
    recording = rank.recording
    if recording is None or recording.exit is None or recording.raised:
        return False
    return not (recording.exit.status or rank.exit_code) and recording.exit.how != "shortened"


def _left_before(rank: RankTrace, time: float, trace: Trace) -> bool:
    recording = rank.recording
    if recording is None or recording.exit is None:
        return False
    return _left_at(recording) <= time or trace.timed_out


def _calls(rank: RankTrace) -> int:
    return issued(rank.recording) if rank.recording else -1


def _where(
    recordings: Mapping[int, Recording], left: Sequence[int], waiting: RankTrace
) -> tuple[Where | None, tuple[Evidence, ...]]:
    """Where ranks left: their own last line, the condition by which they went another way, the ``except`` to which
    they came, or the branch that returns; else the line at which the others wait, which stands beside any other."""
    ended = recordings[left[0]].exit if left[0] in recordings else None
    if ended and ended.at:
        return ended.at, ()
    waits = waiting.recording.raised.at if waiting.recording and waiting.recording.raised else None
    lines = JobLines.of(recordings)
    if lines and (parting := lines.way_out(left, waits)):
        where, evidence = _beside_the_wait(parting.at, waits)
        return where, (*parting.evidence(), *evidence)
    return _beside_the_wait(_swallowed_at(recordings, left, waits) or _returned(waits), waits)


def _beside_the_wait(where: Where | None, waits: Where | None) -> tuple[Where | None, tuple[Evidence, ...]]:
    return (where, shown_at("the others wait", waits)) if where else (waits, ())


def _swallowed_at(recordings: Mapping[int, Recording], left: Sequence[int], at: Where | None) -> Where | None:
    """The ``except`` around a line to which these ranks came, which then ended as if nothing had failed."""
    lines = JobLines.of(recordings)
    if lines is None or at is None:
        return None
    catching = Program.holding(at, recordings[left[0]].script).catching(at)
    return next((it for it in catching if {*left} <= lines.ranks_reaching(it)), None)


def _returned(waits: Where | None) -> Where | None:
    """The branch by which a rank returned ahead of the line at which others wait."""
    return Program.of(waits.file).loops.early_return(waits) if waits else None


def _how_it_ended(rank: RankTrace) -> str:
    how = rank.recording.exit.how if rank.recording and rank.recording.exit else ""
    if how == "returned":
        return "reached the end of its script"
    return f"ended by {'sys.exit' if how == 'exit' else how}"


def _how_it_waited(rank: RankTrace) -> str:
    raised = rank.recording.raised if rank.recording else None
    if raised and raised.at:
        return f"lost its peer at {raised.at}"
    return "did not reach its end"

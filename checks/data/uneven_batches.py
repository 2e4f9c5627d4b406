from collections import Counter
from collections.abc import Mapping

from ddpdoctor.blame.causes import OutOfBatches
from ddpdoctor.blame.wording import place_phrase, verb, who
from ddpdoctor.check import Confidence, Finding, Judgement, NotMeasured, Passed, Role, Skipped, Where, reports
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, log_fields
from ddpdoctor.logs.secondary_errors import waited_in_vain
from ddpdoctor.logs.stall import find_stall
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.text import by_state, plural, ranks_do, ranks_phrase
from ddpdoctor.trace import Recording, Trace, TrainingStep, several
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.lines import program_of
from ddpdoctor.trace.loading import (
    SharedPass,
    begun_rounds,
    by_loader,
    evaluation_rounds,
    rounds_in_order,
    training_rounds,
)
from ddpdoctor.trace.recorded_job import HangCheck
from ddpdoctor.trace.sequence import OF_ONE_SIZE

_EXHAUSTED = "one rank that exhausted inputs"
"""Raised by torch's Join on all ranks, under throw_on_early_termination."""


class UnevenBatches(HangCheck):
    """Ranks run different numbers of batches, and those with more wait for those with fewer.

    What it finds:
        Shards that give ranks different numbers of batches in one pass, of training or of an evaluation that has a
        collective in each batch: which ranks run out, in which batch
        the others would wait for them, counted over the whole pass even where it was cut short. In the live group,
        whether torch's Join, which is made for this, works. Loops under Join, loops that all ranks leave together,
        and ranks that agree in each step, or before the pass, on how many batches there are, are left alone.

    Why it matters:
        Each backward of DDP is a collective of all ranks. A rank that has left the loop does not take part, so
        the others wait in their last batch until the timeout, 10 or 30 minutes; or their collective meets the
        next one of the rank that went on, an evaluation or a barrier, and the results are wrong.

    Example:
        Shards cut by hand, 13 samples for rank 0 and 12 for rank 1:
            loader = DataLoader(dataset[rank::world_size], batch_size=4)     # 4 batches, and 3

    Fix:
        Give every rank as many batches: DistributedSampler does (padding, or drop_last=True). Where the data
        cannot be divided evenly, train under Join:
            with Join([model]):
                for batch in loader:
                    step(batch)
    """

    code = "DD106"
    title = "uneven batches do not stall the group"
    measurements = ("uneven",)
    explained_by = ("DD105",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        ranks.require_right_answers()
        values = ranks.values("uneven")
        self.require(not ranks.replicas_differ, "replicas differ (DD206)")
        if any(value["ran"] is None for value in values.values()):
            raise NotMeasured("all_reduce does not count the ranks, which Join relies on (DD313)")
        batches = {rank: value["batches"] for rank, value in values.items()}
        if len(set(batches.values())) < 2:
            return Skipped("needs at least two ranks")
        short = {rank: value["ran"] for rank, value in values.items() if value["ran"] != batches[rank]}
        different = [rank for rank, value in values.items() if value["difference"]]
        if not (short or different):
            carried = f"{max(batches.values())} and {min(batches.values())} batches"
            return Passed(f"Join carries ranks with {carried} to the end")
        headline = f"the weights of {ranks_phrase(different)} differ from rank 0's after training under Join"
        if short:
            rank, ran = next(iter(short.items()))
            headline = f"rank {rank} ran {ran} of its {batches[rank]} batches under Join"
        return self.fail(
            headline,
            why="Join lets ranks that have run out of batches take part in the collectives of the others, "
            "and then sends them the final weights. Here it did not, so uneven shards cannot be trained on.",
            fix="sampler = DistributedSampler(dataset, drop_last=True)    # as many batches on every rank",
            ranks=tuple(short or different),
            evidence=by_state(batches, lambda count: f"{count} batches in its shard"),
        )

    def examine_run(self, trace: Trace) -> Judgement:
        return self.cause_of_hang(trace) or self.examine_ended(trace)

    def examine_ended(self, trace: Trace) -> Judgement:
        everybody = trace.recordings()
        if not any(recording.steps for recording in everybody.values()):
            return self._before_the_first_update(several(everybody))
        recordings = several({**trace.training(), **_without_a_batch(everybody)})
        if any(step.joined for recording in recordings.values() for step in recording.steps):
            return Passed("ranks train under Join, which carries those that run out of batches")
        every = list(training_rounds(recordings))
        streams = [shared for shared in every if not _counts(shared)]
        if ran_out := _ran_out(trace, [*streams, *filter(_waits, rounds_in_order(recordings))]):
            drawn = {rank: pass_.drawn for rank, pass_ in ran_out.passes.items()}
            return self._stalls(ran_out, _counts(ran_out) or drawn)
        evaluated = [shared for shared in evaluation_rounds(recordings) if _meets_in_each_batch(shared)]
        rounds = [shared for shared in (*every, *evaluated) if _counts(shared)]
        self.require(rounds, "how many batches a pass has cannot be known from the loaders that train")
        if not any(map(_communicates, recordings.values())):
            raise NotMeasured("ranks do not wait for each other in training steps")
        return [
            self._stalls(shared, _counts(shared)) for shared, _ in by_loader(rounds, _is_uneven)
        ] or Passed(_even(rounds[0]))

    def _before_the_first_update(self, recordings: dict[int, Recording]) -> Judgement:
        """Of a run that stopped there: ranks without a single batch leave the others in their first backward."""
        rounds = [shared for shared in begun_rounds(recordings) if _some_have_none(shared)]
        self.require(rounds, "no optimizer took a step")
        return [self._stalls(shared, _counts(shared)) for shared, _ in by_loader(rounds, _some_have_none)]

    @reports(OutOfBatches)
    def _out_of_batches(self, cause: OutOfBatches) -> Finding:
        waiting = cause.waiting
        return self.fail(
            f"{who(cause.culprits)} ran out of batches after {cause.drawn}, and {who(waiting)} "
            f"{verb(waiting, 'waits', 'wait')} in batch {cause.drawn + 1}, in {place_phrase(cause.waits_in)}"
        )

    def examine_log(self, log: Log) -> Judgement:
        exhausted = next((raised for raised in log.fatal if _EXHAUSTED in raised.message), None)
        waited = next((raised for raised in log.fatal if waited_in_vain(raised) and _in_join(raised)), None)
        if raised := exhausted or waited:
            details = log_fields(raised, role=Role.CAUSE if exhausted else Role.MESSENGER)
            headline = "ranks ran out of batches at different steps"
            return self.fail(headline, confidence=Confidence.LIKELY, **details)
        bars = {bar.line.rank: bar for bar in log.progress if bar.line.rank is not None and bar.total}
        totals = sorted({bar.total for bar in bars.values()})
        if find_stall(log) is None or len(totals) < 2 or len(totals) * 4 < len(bars):
            return NOT_IN_OUTPUT
        lines = [next(bar.line for bar in bars.values() if bar.total == total) for total in totals]
        counts = " and ".join(
            f"{ranks_phrase(rank for rank, bar in bars.items() if bar.total == total)} {total}"
            for total in totals
        )
        headline = f"ranks have different numbers of batches: {counts}"
        details = log_fields(*lines, role=Role.MESSENGER)
        return self.fail(headline, confidence=Confidence.LIKELY, **details)

    def _stalls(self, shared: SharedPass, counts: dict[int, int]) -> Finding:
        fewest, most = min(counts.values()), max(counts.values())
        short = [rank for rank, count in counts.items() if count == fewest]
        long = [rank for rank, count in counts.items() if count == most]
        cut = any(pass_.ended == "shortened" for pass_ in shared.passes.values())
        more = "" if counts == _counts(shared) else " or more"
        return self.fail(
            f"{ranks_do(long, 'run')} {plural(most, 'batch')}{more} in a pass, {ranks_phrase(short)} only "
            f"{fewest}: the others wait in batch {fewest + 1}",
            **shared.fields(
                counts, lambda count: f"{plural(count, 'batch')}{more if count > fewest else ''} in its shard"
            )
            | {"ranks": tuple(short)},
            confidence=Confidence.LIKELY if cut else Confidence.CERTAIN,
        )


def _some_have_none(shared: SharedPass) -> bool:
    """Whether some ranks have no batch in a pass, while others compute with theirs what all have to average."""
    counts = _counts(shared)
    with_batches = [rank for rank, count in counts.items() if count]
    learns = any(map(shared.forwards, with_batches))
    return learns and len(with_batches) < len(counts) and any(map(_communicates, shared.recordings.values()))


def _without_a_batch(recordings: Mapping[int, Recording]) -> dict[int, Recording]:
    """The ranks that took no step and whose loop had no batch to take one with."""
    return {
        rank: recording
        for rank, recording in recordings.items()
        if not recording.all_steps and any(pass_.batches == 0 for pass_ in recording.passes)
    }


def _counts(shared: SharedPass) -> dict[int, int]:
    """The batches of the whole pass by rank; empty where one is not known."""
    known = {rank: count for rank, pass_ in shared.passes.items() if (count := _count(pass_)) is not None}
    return known if len(known) == len(shared.ranks) else {}


def _count(pass_: Pass) -> int | None:
    if pass_.batches is not None:
        return pass_.batches
    return pass_.drawn if pass_.ended == "exhausted" else None


def _ran_out(trace: Trace, rounds: list[SharedPass]) -> SharedPass | None:
    """The pass of a run that broke in which the batches of a rank ended, and others went on."""
    first = trace.first_to_break()
    if not trace.broken or trace.out_of_time or (first is not None and not first.is_victim):
        return None
    return next((it for it in rounds if _ends_early(it) and not _agrees_on_batches(it)), None)


def _waits(shared: SharedPass) -> bool:
    """Whether the ranks that went on may still wait there: they came to no later pass, and average once more."""
    fewest = min(pass_.drawn for pass_ in shared.passes.values())
    went_on = [rank for rank, pass_ in shared.passes.items() if pass_.drawn > fewest]
    if any(shared.recordings[rank].training_passes[-1] is not shared.passes[rank] for rank in went_on):
        return False
    return not _counts(shared) or (_is_uneven(shared) and any(map(_communicates, shared.recordings.values())))


def _meets_in_each_batch(shared: SharedPass) -> bool:
    """Whether one line of an evaluation has a collective for each batch; that of the last may not have come back.

    A loop that all ranks left in the same batch may have a bound. Where workers are persistent, its pass has no end.
    """
    cut = any(pass_.ended == "shortened" for pass_ in shared.passes.values())
    if not cut and len({pass_.drawn for pass_ in shared.passes.values()}) == 1:
        return False
    for rank, pass_ in shared.passes.items():
        if pass_.end is None and _goes_on_after(shared.recordings[rank], pass_):
            return False
        calls = (call for call in shared.recordings[rank].collectives if pass_.covers(call.time))
        of_all = (call for call in calls if call.group is None and call.operation.startswith(OF_ONE_SIZE))
        of_line = Counter(call.at for call in of_all)
        if not 1 < pass_.drawn <= max(of_line.values(), default=0) + 1:
            return False
    return True


def _goes_on_after(recording: Recording, pass_: Pass) -> bool:
    """Whether this rank makes another pass, or trains, after this one began."""
    learns = (forward.time for forward in recording.forwards if forward.grad)
    return any(time > pass_.begin for time in (*learns, *(later.begin for later in recording.passes)))


def _ends_early(shared: SharedPass) -> bool:
    ends = [pass_.drawn for pass_ in shared.passes.values() if pass_.ended == "exhausted"]
    return bool(ends) and any(pass_.drawn > min(ends) for pass_ in shared.passes.values())


def _is_uneven(shared: SharedPass) -> bool:
    stalls = len(set(_updates(shared).values())) > 1
    return stalls and not (_left_together(shared) or _agrees_on_batches(shared))


def _updates(shared: SharedPass) -> dict[int, int]:
    """How often each rank averages in the whole pass: once in a window of micro-batches that are accumulated."""
    windows = {rank: _window(shared.recordings[rank], pass_) for rank, pass_ in shared.passes.items()}
    usual = max(windows.values(), default=1) or 1
    return {rank: count // (windows[rank] or usual) for rank, count in _counts(shared).items()}


def _window(recording: Recording, pass_: Pass) -> int:
    """Backwards to an update of which only the last one averages, of all passes where one that trains had none."""
    anywhere = () if pass_.evaluation and not pass_.training else recording.steps
    sizes = [
        len(step.backwards)
        for step in _steps_in(recording, pass_) or anywhere
        if step.backwards and not any(backward.reduced for backward in step.backwards[:-1])
    ]
    return max(sizes, default=0)


def _steps_in(recording: Recording, pass_: Pass) -> list[TrainingStep]:
    return [step for step in recording.steps if step.forwards and pass_.covers(step.forwards[0].time)]


def _communicates(recording: Recording) -> bool:
    """Whether updates wait for other ranks."""
    return bool(recording.wrappers) or any(step.collectives for step in recording.steps)


def _agrees_on_batches(shared: SharedPass) -> bool:
    """Whether the ranks tell each other who has batches left, or how many there are."""
    return all(
        _agrees_in_steps(shared.recordings[rank], pass_) or _agrees_before(shared.recordings[rank], pass_)
        for rank, pass_ in shared.passes.items()
    )


def _left_together(shared: SharedPass) -> bool:
    """Whether nobody went on where the shortest pass ended; a batch may be drawn before the flag is asked."""
    fewest = min(_counts(shared).values())
    if any(recording.raised for recording in shared.recordings.values()):
        return False
    return all(
        it.drawn <= fewest + 1 if it.ended == "left" else it.ended == "exhausted" and it.drawn <= fewest
        for it in shared.passes.values()
    )


def _agrees_in_steps(recording: Recording, pass_: Pass) -> bool:
    """Whether each step begins with a collective on one number, before any forward: does everybody have a batch?"""
    steps = _steps_in(recording, pass_)
    return len(steps) > 1 and all(
        any(_is_one_number(call) and call.time < step.forwards[0].time for call in step.collectives)
        for step in steps[1:]
    )


def _agrees_before(recording: Recording, pass_: Pass) -> bool:
    """Whether the ranks compared their lengths before a pass that was cut short: the smallest, or everybody's count."""
    if pass_.ended != "shortened":
        return False
    return any(
        call.time < pass_.begin
        and _is_one_number(call)
        and (
            call.reduce == "min"
            or (call.operation.startswith("all_gather") and "int" in (call.dtype or "int"))
        )
        and _is_of_lengths(call.at, recording)
        for call in recording.collectives
    )


def _is_of_lengths(at: Where | None, recording: Recording) -> bool:
    """Whether what a line hands on is made of lengths; so where it cannot be read."""
    calls = program_of(at, {0: recording}).calls_at(at) if at else []
    parts = (part for call in calls for given in call.arguments for part in given.made_of())
    return not calls or any("builtins.len" in part.called for part in parts)


def _is_one_number(call: Collective) -> bool:
    return (
        (call.shape is None or sum(call.shape) <= 1)
        and call.operation.startswith(("all_reduce", "all_gather", "broadcast"))
        and not call.requires_grad
    )


def _even(shared: SharedPass) -> str:
    counts = _counts(shared)
    fewest, most = min(counts.values()), max(counts.values())
    if fewest == most:
        return f"{ranks_phrase(counts)} have {plural(most, 'batch')} each in a pass"
    return f"ranks have {fewest} to {most} batches and leave the loop together"


def _in_join(raised: Raised) -> bool:
    """Whether the wait was one that asks whether all ranks still have batches."""
    return any("join" in frame.function.lower() or "/join.py" in frame.file for frame in raised.frames)

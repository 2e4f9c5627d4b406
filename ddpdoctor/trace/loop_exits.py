"""Who has left a loop that others still go on with: by their batches, or by a decision of their own."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from ddpdoctor.blame.causes import LeftBackwardOut, LeftLoop, LeftStepsOut
from ddpdoctor.model import Where
from ddpdoctor.program import Origin, Program
from ddpdoctor.program.loops import Loops
from ddpdoctor.recorder.events.training import Collective, Forward
from ddpdoctor.text import by_state, plural
from ddpdoctor.trace.data import Pass, TrainingStep
from ddpdoctor.trace.lines import JobLines, Parting
from ddpdoctor.trace.recording import Recording

Places = Mapping[int, Where | None]
"""Where ranks were seen to be, besides what their records tell."""
_TO_ITS_END = ("exhausted", "shortened")


def loops_of(recording: Recording, at: Where | None) -> Loops:
    """The loops of the program that a rank ran, as far as a line belongs to it."""
    return Program.holding(at or Where(recording.script, None), recording.script).loops


def name_of(where: Where) -> str:
    """The function's own name, without the class around it."""
    return (where.function or "").rpartition(".")[2]


def leavers(recordings: Mapping[int, Recording], places: Places | None = None) -> list[int]:
    """The ranks that have done with a loop over data, or with training, that others still went on with."""
    places = places or {}
    furthest = _furthest(recordings)
    most = max((begun(recording, places.get(rank)) for rank, recording in recordings.items()), default=0)
    return [
        rank
        for rank, recording in recordings.items()
        if _is_behind_in_pass(recording, furthest, "left")
        # The rank that waits stands in a step that it has begun, so it may be ahead by the one it did not end.
        or (begun(recording, places.get(rank)) < most and _is_done(recording, places.get(rank)))
    ]


def out_of_batches(recordings: Mapping[int, Recording]) -> list[int]:
    """The ranks that have come to the end of their batches in a pass in which others have drawn more."""
    furthest = _furthest(recordings)
    return [
        rank
        for rank, recording in recordings.items()
        if _is_behind_in_pass(recording, furthest, "exhausted") or _had_no_batch(recording, furthest)
    ]


def _had_no_batch(recording: Recording, furthest: Mapping[int, int]) -> bool:
    """Whether its first pass was empty, in which others have drawn batches."""
    empty = [pass_ for pass_ in recording.passes if pass_.batches == 0 and not pass_.evaluation]
    return bool(empty) and not training_passes(recording) and furthest.get(1, 0) > 0


def _furthest(recordings: Mapping[int, Recording]) -> dict[int, int]:
    """The most batches that a rank took of the last pass that it made, by how many it made."""
    most: dict[int, int] = {}
    for passes in map(training_passes, recordings.values()):
        if passes:
            most[len(passes)] = max(passes[-1].drawn, most.get(len(passes), 0))
    return most


def _is_behind_in_pass(recording: Recording, furthest: Mapping[int, int], ended: str) -> bool:
    passes = training_passes(recording)
    if not passes or passes[-1].ended != ended or passes[-1].drawn >= furthest[len(passes)]:
        return False
    raised, loops = recording.raised, loops_of(recording, passes[-1].at)
    # An exception leaves the loop as well, which was none of the rank's decisions.
    left = raised and any(loops.is_in_loop_at(passes[-1].at, it) for it in (*raised.frames, raised.at))
    return not left


def _is_done(recording: Recording, place: Where | None) -> bool:
    """Whether it will not train again: it came to its end, or waits for the others behind the loop."""
    update = last_update(recording)
    is_behind = loops_of(recording, update).is_behind
    if recording.raised is not None:
        return is_behind(update, recording.raised.at)
    if recording.group_events("destroy"):
        return True
    if place is not None:
        return is_behind(update, place)
    if call := open_call(recording):
        return is_behind(update, call.at)
    ended = recording.exit
    return ended is not None and (ended.how == "returned" or is_behind(update, ended.at))


def last_update(recording: Recording) -> Where | None:
    """A line that updates the weights."""
    return next((step.optimizer_steps[-1].at for step in recording.steps if step.optimizer_steps), None)


def loop_left(
    recordings: Mapping[int, Recording], ranks: Sequence[int], place: Where | None = None
) -> LeftLoop | LeftStepsOut:
    """How these ranks, which :func:`leavers` named, came to leave: before the end of the loop, or past some steps;
    ``place`` is where the first of them was seen to be since."""
    first = recordings[ranks[0]]
    if fewer := _left_out(recordings, ranks[0]):
        return LeftStepsOut(culprits=tuple(ranks), fewer=fewer, where=_left_out_at(first))
    parting = _way_out(recordings, ranks, _loop(first) or last_update(first))
    return LeftLoop(
        culprits=tuple(ranks),
        steps=steps_of(first),
        had_batches=bool(training_passes(first)),
        where=_turn_left_out(first, parting.at if parting else _left_at(first, place)),
        states=parting.evidence() if parting else (),
    )


def _way_out(
    recordings: Mapping[int, Recording], ranks: Sequence[int], inside: Where | None, step: int | None = None
) -> Parting | None:
    """The condition by which these ranks went another way than the others, where their lines were recorded."""
    lines = JobLines.of(recordings)
    return lines.way_out(ranks, inside, step) if lines else None


def backward_left_out(recordings: Mapping[int, Recording], ranks: Sequence[int]) -> LeftBackwardOut:
    """Which backward these ranks, which :func:`skippers` named, left out."""
    first = recordings[ranks[0]]
    step, forwards = _skipped_step(first), training_forwards(first)
    parting = None
    if step is not None:
        parting = _way_out(recordings, ranks, forwards[-1].at if forwards else None, step.index)
    return LeftBackwardOut(
        culprits=tuple(ranks),
        step=step.index if step else None,
        where=parting.at if parting else _skipped_at(first),
        states=parting.evidence() if parting else (),
    )


def skippers(
    recordings: Mapping[int, Recording], inside: Collection[int] = (), places: Places | None = None
) -> list[int]:
    """The ranks that went forward as often as the others, and backward less often; not those ``inside`` a backward as
    they were seen to stand, which their records have not yet. Places are where ranks were seen to be besides."""
    if any(map(_is_late, recordings.values())):
        return []
    forwards = {rank: len(training_forwards(recording)) for rank, recording in recordings.items()}
    backwards = {rank: len(recording.backwards) for rank, recording in recordings.items()}
    backwards |= {rank: backwards[rank] + 1 for rank in recordings if rank in inside}
    fewer = [rank for rank in recordings if backwards[rank] < max(backwards.values())]
    level = [rank for rank in fewer if forwards[rank] >= max(forwards.values())]
    # Who went on is in a later step than those that ran each backward.
    same_step = max((forwards[rank] for rank in recordings if rank not in fewer), default=0)
    known = [it.backwards[-1].at for it in recordings.values() if it.backwards]
    backward = next(filter(None, (*known, *((places or {}).get(rank) for rank in inside))), None)
    return [
        rank
        for rank in level
        if _skipped_step(recordings[rank])
        if forwards[rank] > same_step
        or not _is_amid_step(recordings[rank], backward, (places or {}).get(rank))
    ]


def _is_amid_step(recording: Recording, backward: Where | None, place: Where | None) -> bool:
    """Whether it stands ahead of the backward of a step that it has begun, as in a collective of its own."""
    begun = recording.trailing.forwards if recording.trailing else ()
    forwards = [*filter(recording.learns, begun)]
    done = max((backward.time for backward in recording.backwards), default=-math.inf)
    if not forwards or forwards[-1].time < done or backward is None:
        return False
    frames = reversed(recording.raised.frames if recording.raised else ())
    here = (frame for frame in frames if (frame.file, name_of(frame)) == (backward.file, name_of(backward)))
    at = next(here, place or _place_since(recording))
    loops = loops_of(recording, backward)
    between = loops.is_between(at, forwards[-1].at, backward)
    return loops.skip_branch(forwards[-1].at, backward) is None if between is None else between


def _skipped_step(recording: Recording) -> TrainingStep | None:
    """The first step with a forward more than backwards, behind which the rank went on."""
    steps = recording.all_steps
    return next((it for it in steps if sum(map(recording.learns, it.forwards)) > len(it.backwards)), None)


def _skipped_at(recording: Recording) -> Where | None:
    """The branch by which it left out that backward, where there is one only; else its forward."""
    step, backwards = _skipped_step(recording), recording.backwards
    forward = step.forwards[0].at if step else None
    backward = backwards[-1].at if backwards else None
    return loops_of(recording, backward).skip_branch(forward, backward) or forward


def training_forwards(recording: Recording) -> list[Forward]:
    """Those that went through the wrapper with autograd."""
    return [forward for forward in recording.forwards if recording.learns(forward) and not forward.around]


def begun(recording: Recording, place: Where | None = None) -> int:
    """Training steps, with the one begun; ``place`` is where the rank was seen, besides what its record tells."""
    return steps_of(recording) + is_in_a_step(recording, place)


def steps_of(recording: Recording) -> int:
    """Training steps that were ended."""
    return recording.step_count or len(recording.steps)


def is_in_a_step(recording: Recording, place: Where | None = None) -> bool:
    """Whether it has begun a training step that it did not end; ``place`` as in :func:`begun`."""
    forwards = recording.trailing.forwards if recording.trailing else ()
    if any(map(recording.learns, forwards)):
        return True
    at = recording.raised.at if recording.raised else place
    last = recording.backwards[-1].at if recording.backwards else None
    return _is_late(recording) and at is not None and last is not None and at.place == last.place


def _is_late(recording: Recording) -> bool:
    """Whether there is no record of its latest steps but their number."""
    return recording.step_count > len(recording.steps)


def _left_out(recordings: Mapping[int, Recording], rank: int) -> int:
    """How many training steps fewer than another a rank began in the same batches; 0 where it drew fewer."""
    passes, furthest = training_passes(recordings[rank]), _furthest(recordings)
    if not passes or passes[-1].ended not in _TO_ITS_END:
        return 0
    if len(passes) < max(furthest) or passes[-1].drawn < furthest[len(passes)]:
        return 0
    return max(map(begun, recordings.values())) - begun(recordings[rank])


def left_out_unseen(recordings: Mapping[int, Recording]) -> LeftStepsOut | None:
    """The first pass in which ranks trained on fewer of as many batches, in a run that came to its end all the same.

    Ranks that leave out as many steps, each at another time, wait for nobody in the end. Steps are counted to the pass
    in which they end, which says nothing of loops that draw ahead; so ranks have to be seen to part, too.
    """
    if (lines := JobLines.of(recordings)) is None:
        return None
    for row in zip(*map(training_passes, recordings.values()), strict=False):
        made = {rank: pass_.steps for rank, pass_ in zip(recordings, row, strict=True)}
        most = max(made.values())
        fewer = tuple(rank for rank in made if made[rank] < most)
        alike = len({(it.at, it.drawn, it.ended) for it in row}) == 1 and row[0].ended in _TO_ITS_END
        where = _left_out_at(recordings[fewer[0]]) if fewer and alike else None
        if where and where != _loop(recordings[fewer[0]]) and lines.part_at(where):
            states = by_state(made, lambda steps: f"{plural(steps, 'training step')} in a pass")
            return LeftStepsOut(culprits=fewer, fewer=most - min(made.values()), where=where, states=states)
    return None


def _left_out_at(recording: Recording) -> Where | None:
    """The branch by which it goes past the forward or the backward, where there is one only; else the loop."""
    loop, forwards, backwards = _loop(recording), training_forwards(recording), recording.backwards
    ways = [loop, *(it.at for it in forwards[:1]), *(it.at for it in backwards[:1])]
    branches = (loops_of(recording, loop).skip_branch(*way) for way in pairwise(ways))
    return next(filter(None, branches), loop)


def last_pass(recording: Recording) -> Pass | None:
    """The last one in which it trained."""
    return next(reversed(training_passes(recording)), None)


def training_passes(recording: Recording) -> list[Pass]:
    """Those in which an optimizer stepped, and one in which the first step was begun."""
    forwards = recording.trailing.forwards if recording.trailing else ()
    begun = [forward.time for forward in forwards if recording.learns(forward)]
    loops = {pass_.at for pass_ in recording.passes if pass_.training}
    if _is_late(recording):
        begun += [pass_.begin for pass_ in recording.passes[-1:] if pass_.at in loops]
    return [pass_ for pass_ in recording.passes if pass_.training or any(map(pass_.covers, begun))]


def _left_at(recording: Recording, place: Where | None = None) -> Where | None:
    """The branch by which a rank left the loop, where there is one only; else the loop, or the last update; ``place``
    is where it was seen to be since."""
    update = recording.steps[-1].optimizer_steps[-1].at if recording.steps else None
    loop, since = _loop(recording), place or _place_since(recording)
    return loops_of(recording, loop or update).exit_branch(loop or update, since) or loop or update


def _turn_left_out(recording: Recording, loop: Where | None) -> Where | None:
    """The branch by which a turn of a loop goes past the forward, where the loop takes as many turns on every rank."""
    forwards = training_forwards(recording)
    turns = Program.holding(loop, recording.script).turns_at(loop) if loop else None
    if turns is None or not turns.only(Origin.ENVIRONMENT) or not forwards:
        return loop
    return loops_of(recording, loop).skip_branch(loop, forwards[0].at) or loop


def _loop(recording: Recording) -> Where | None:
    """The loop over the batches that it trained on last."""
    last = last_pass(recording)
    return last.at if last else None


def _place_since(recording: Recording) -> Where | None:
    """Where a rank that has left its loop was last."""
    ended = next(iter(recording.group_events("destroy")), recording.exit)
    event = recording.raised or open_call(recording) or ended
    return event.at if event else None


def open_call(recording: Recording) -> Collective | None:
    """The collective that it has begun last and not ended."""
    begun = (collective for collective in recording.collectives if not collective.ended)
    return max(begun, key=lambda collective: collective.time, default=None)

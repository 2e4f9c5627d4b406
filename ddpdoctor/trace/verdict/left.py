"""Ranks that have left the others behind: out of batches (DD106), out of a loop (DD308), out of the script (DD305)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpdoctor.blame.standstill import Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace.leaving import last_pass, leavers, left_at, left_out, left_out_at, out_of_batches
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.verdict.standing import Standing, recordings_of
from ddpdoctor.trace.verdict.words import doing, evidence, they, waiting_in

Crowd = Mapping[int, Standing]
LEAVE_OUT_TOGETHER = (
    "skip = skip.float()    # what decides, as a tensor\ndist.all_reduce(skip)\n"
    "if skip.item() > 0:        # equal on every rank\n    continue"
)
"""The fix where ranks skip a step by a decision of their own."""
WHY_LEFT_OUT = (
    "Every rank drew as many batches, and each backward of DDP needs every rank. Whether to train on a batch "
    "was decided by what one rank alone saw, so from there on that rank is ahead of the others."
)
"""Why that harms where the whole step was left out."""


def gone(crowd: Crowd, ranks: Sequence[int], standstill: Standstill) -> Verdict:
    """Why ranks whose script ended with status 0 are missed by the others."""
    seen = recordings_of(crowd)
    early = [rank for rank in out_of_batches(seen) if rank in ranks]
    if early:
        return fewer_batches(crowd, early, standstill)
    early = [rank for rank in leavers(seen) if rank in ranks]
    if early:
        return left_the_loop(crowd, early, standstill)
    return _ended(crowd, ranks, standstill)


def fewer_batches(crowd: Crowd, ranks: Sequence[int], standstill: Standstill) -> Verdict:
    """Ranks that have run out of batches in a pass of which others have more."""
    first = _recording(crowd, ranks)
    waiting = _waiting(crowd, ranks)
    last = last_pass(first)
    assert last is not None
    loader = next((one for one in first.loaders if one.index == last.loader), None)
    return Verdict(
        "DD106",
        f"{ranks_phrase(ranks)} ran out of batches after {last.drawn}, and {ranks_phrase(waiting)} "
        f"{they(waiting, 'waits', 'wait')} in batch {last.drawn + 1}, in {waiting_in(crowd, waiting)}",
        why="Each backward averages over all ranks. Those that have run out of batches have left the loop and do not "
        "take part, so the others wait until the timeout, or their all-reduce meets another collective.",
        fix="sampler = DistributedSampler(dataset)    # equal shards; or train under Join:\nwith Join([model]):\n"
        "    for batch in loader:",
        culprits=tuple(ranks),
        waiting=waiting,
        where=(loader.at if loader else None) or last.at,
        evidence=evidence(crowd, standstill),
    )


def left_the_loop(crowd: Crowd, ranks: Sequence[int], standstill: Standstill) -> Verdict:
    """Ranks that left a loop which others still go on with, although they had batches for more."""
    first = _recording(crowd, ranks)
    waiting = _waiting(crowd, ranks)
    if fewer := left_out(recordings_of(crowd), ranks[0]):
        return _left_out_steps(crowd, ranks, fewer, standstill)
    steps = first.step_count or len(first.steps)
    return Verdict(
        "DD308",
        f"{ranks_phrase(ranks)} left the training loop after {plural(steps, 'step')}, while "
        f"{ranks_phrase(waiting)} went on and {they(waiting, 'waits', 'wait')} in {waiting_in(crowd, waiting)}",
        why="Every rank had data for more steps, so what ended the loop was decided from values of that rank alone. "
        "The others wait for it in their next collective.",
        fix="stop = torch.tensor([float(stop)])     # what each rank would decide\n"
        "dist.all_reduce(stop, op=dist.ReduceOp.MAX)\nif stop.item():\n    break",
        culprits=tuple(ranks),
        waiting=waiting,
        where=left_at(first, crowd[ranks[0]].where),
        evidence=evidence(crowd, standstill),
    )


def _left_out_steps(crowd: Crowd, ranks: Sequence[int], fewer: int, standstill: Standstill) -> Verdict:
    waiting = _waiting(crowd, ranks)
    return Verdict(
        "DD308",
        f"{ranks_phrase(ranks)} left out {plural(fewer, 'training step')}, and "
        f"{ranks_phrase(waiting)} {they(waiting, 'waits', 'wait')} in {waiting_in(crowd, waiting)}",
        why=WHY_LEFT_OUT,
        fix=LEAVE_OUT_TOGETHER,
        culprits=tuple(ranks),
        waiting=waiting,
        where=left_out_at(_recording(crowd, ranks)),
        evidence=evidence(crowd, standstill),
    )


def _ended(crowd: Crowd, ranks: Sequence[int], standstill: Standstill) -> Verdict:
    first = crowd[ranks[0]]
    waiting = _waiting(crowd, ranks)
    ended = first.recording.exit if first.recording else None
    return Verdict(
        "DD305",
        f"{ranks_phrase(ranks)} {doing(first)} with status 0, and {ranks_phrase(waiting)} still "
        f"{they(waiting, 'waits', 'wait')} in {waiting_in(crowd, waiting)}",
        why="A collective needs every rank of its group. A launcher takes status 0 for success, so nothing ends the "
        "others before the timeout of the process group.",
        fix="dist.barrier()                  # on every rank, after the last work\ndist.destroy_process_group()",
        culprits=tuple(ranks),
        waiting=waiting,
        where=(ended.at if ended else None) or next((crowd[rank].where for rank in waiting), None),
        evidence=evidence(crowd, standstill),
    )


def _waiting(crowd: Crowd, ranks: Sequence[int]) -> tuple[int, ...]:
    return tuple(rank for rank, one in crowd.items() if one.waits and rank not in ranks)


def _recording(crowd: Crowd, ranks: Sequence[int]) -> Recording:
    found = crowd[ranks[0]].recording
    assert found is not None
    return found

import math
from collections.abc import Mapping

from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.recorder.events.updates import Clip
from ddpdoctor.text import by_state, plural, ranks_phrase
from ddpdoctor.trace import Trace, TrainingStep, grouped
from ddpdoctor.trace.sync import Update, replicas, updates

_RELATIVE = 1e-3
"""Norms of equal gradients agree far closer than this."""


class ClipBeforeSync(Check):
    """Gradients are clipped before they are averaged over the ranks.

    What it finds:
        clip_grad_norm_ calls whose norm differs between ranks, in steps whose gradients are equal in the end:
        the clipping came in a micro-batch inside no_sync(), ahead of the backward that averages, or ahead of the
        script's all_reduce.

    Why it matters:
        Each rank scales its own part of the gradient by another factor, and the average is of these. The result is
        equal on all ranks, so nothing looks wrong, and it is not the clipped gradient of the batch.

    Example:
        Clipping inside the loop over micro-batches:
            with model.no_sync():
                model(x).mean().backward()
            clip_grad_norm_(model.parameters(), 1.0)

    Fix:
        Clip once for each update, after the backward that reduces and right before optimizer.step().
    """

    code = "DD218"
    title = "gradients are averaged before they are clipped"
    explained_by = (
        *("DD201", "DD202", "DD203", "DD204", "DD205", "DD206", "DD207", "DD214", "DD225", "DD226"),
        "DD227",
    )

    def examine_run(self, trace: Trace) -> Findings:
        rows = [
            (update, row)
            for group in replicas(trace)
            for update in updates(group)
            for row in _side_by_side(update.steps)
        ]
        self.require(rows, "no gradient norm was clipped")
        early = [(it.index, row) for it, row in rows if _unequal(row) and _averaged_later(it, row)]
        lines = grouped(early, lambda clipping: next(iter(clipping[1].values())).at)
        for clippings in lines:
            # Of the clippings in one line.
            index, row = clippings[0]
            low, high = (edge(clip.norm or 0.0 for clip in row.values()) for edge in (min, max))
            yield self.fail(
                f"gradients are clipped before they are averaged: norms from {low:.4g} to {high:.4g} on "
                f"{ranks_phrase(row)} in one step",
                where=next(iter(row.values())).at,
                evidence=(
                    *by_state({rank: f"step {index}, {_shown(clip)}" for rank, clip in row.items()}),
                    f"{plural(len(clippings), 'such clipping')} in the steps recorded",
                ),
            )
        yield Passed(f"{plural(len(rows), 'clipping')} of gradients that were averaged")


def _shown(clip: Clip) -> str:
    return f"after {plural(clip.backwards, 'backward')}: norm {clip.norm:.6g}"


def _side_by_side(steps: Mapping[int, TrainingStep]) -> list[dict[int, Clip]]:
    """The clippings of one step that every rank did, in order."""
    clips = {rank: step.clips for rank, step in steps.items()}
    if len(set(map(len, clips.values()))) > 1:
        return []
    rows = [dict(zip(clips, row, strict=True)) for row in zip(*clips.values(), strict=True)]
    return [row for row in rows if all(clip.norm is not None for clip in row.values())]


def _averaged_later(update: Update, row: Mapping[int, Clip]) -> bool:
    """Whether a backward came after the clipping, or the gradients it was given are equal in the end."""
    if any(clip.backwards < len(update.steps[rank].backwards) for rank, clip in row.items()):
        return True
    known = [taken.gradients for taken in update.taken.values() if taken.gradients]
    covered = all(0 < clip.keys <= min(map(len, known), default=0) for clip in row.values())
    return covered and len(known) == len(row) and not update.differing_gradients


def _unequal(row: Mapping[int, Clip]) -> bool:
    norms = [clip.norm for clip in row.values() if clip.norm is not None and math.isfinite(clip.norm)]
    return len(norms) == len(row) and max(norms) - min(norms) > _RELATIVE * max(norms)

from collections.abc import Sequence

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.recorder.events.updates import Clip
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, grouped, on_each_rank


class ClipBeforeUnscale(Check):
    """Gradients are clipped before GradScaler.unscale_.

    What it finds:
        A clip_grad_norm_ or clip_grad_value_ on gradients that a GradScaler has multiplied by its scale and that
        unscale_ has not divided again. Of a script that clips by hand, gradients that are cut to the same norm in
        every step before unscale_ comes to them, which is the line that is named.

    Why it matters:
        The scale is 65536 at the start, so the norm is that many times too large, and clipping cuts nearly every
        gradient to a tiny one: training almost stops. The more the scale moves, the more the result depends on it.

    Example:
        unscale_ is missing:
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)

    Fix:
        scaler.unscale_(optimizer) between the backward and the clipping.
    """

    code = "DD217"
    title = "gradients are clipped after unscale_"

    def examine_run(self, trace: Trace) -> Judgement:
        clips = on_each_rank(trace.training(), _with_scaler)
        self.require(clips, "nothing was clipped while a GradScaler was in use")
        scaled = [(rank, clip) for rank, clip in clips if clip.stage == "READY" and clip.scale != 1]
        return list(map(self._scaled, grouped(scaled, lambda pair: pair[1].at))) or Passed(
            f"{plural(len(clips), 'clipping')} came after unscale_"
        )

    def _scaled(self, clips: Sequence[tuple[int, Clip]]) -> Finding:
        """Of the clippings in one line."""
        ranks = tuple(dict.fromkeys(rank for rank, _ in clips))
        first = clips[0][1]
        return self.fail(
            f"gradients are clipped at {first.scale:g} times their size, before unscale_, on {ranks_phrase(ranks)}",
            where=first.at,
            evidence=(
                Evidence(_shown(first), (ranks[0],)),
                Evidence(f"{plural(len(clips), 'call')} in the steps recorded", ranks),
            ),
        )


def _with_scaler(recording: Recording) -> list[Clip]:
    return [clip for step in recording.steps for clip in step.clips if clip.scale is not None]


def _shown(clip: Clip) -> str:
    norm = "" if clip.norm is None else f"norm {clip.norm:.4g}, "
    limit = "" if clip.limit is None else f"limit {clip.limit:g}, "
    return f"{norm}{limit}scale {clip.scale:g}"

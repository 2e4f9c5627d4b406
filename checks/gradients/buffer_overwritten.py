from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.process import Raised
from ddpdoctor.trace.raised import last_lines, raised_as
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import Wrapper

_MESSAGE = r"RuntimeError: .*modified by an inplace operation"
"""Not in ``raises``: it is this disease only where a wrapper had buffers to broadcast; else the script's own."""


class BufferOverwritten(Check):
    """DDP's broadcast of buffers overwrote what a pending backward still needs.

    What it finds:
        The error "modified by an inplace operation" in a backward that follows two forwards through a wrapper
        whose module has buffers, BatchNorm's statistics for instance.

    Why it matters:
        Each forward begins by writing rank 0's buffers over those of the other ranks, in place. Where a first
        forward's graph still waits for its backward and holds a buffer, autograd finds it changed and stops.
        Run on one GPU without DDP, the same script works.

    Example:
        A GAN's discriminator, with BatchNorm, sees real and fake images before one backward:
            loss = criterion(disc(real), ones) + criterion(disc(fake), zeros)
            loss.backward()

    Fix:
        DistributedDataParallel(disc, broadcast_buffers=False); or one forward over both:
        disc(torch.cat([real, fake])).
    """

    code = "DD215"
    name = "buffer-overwritten"
    family = Family.GRADIENTS
    title = "no buffer is overwritten under a pending backward"

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, _MESSAGE)
        recordings = trace.recordings()
        for rank, one in raised.items():
            if wrapper := _forwarded_twice(recordings[rank]):
                return [self._overwritten(raised, one, wrapper)]
        trace.training()
        if not any(wrapper.buffers for one in recordings.values() for wrapper in one.wrappers):
            raise NotMeasured("no wrapped module has buffers")
        return Passed("no backward found its buffers changed")

    def _overwritten(self, raised: dict[int, Raised], first: Raised, wrapper: Wrapper) -> Finding:
        ranks = tuple(sorted(raised))
        return self.fail(
            f"a second forward of {wrapper.module} overwrote its {plural(len(wrapper.buffers), 'buffer')} before "
            f"the first one's backward on {ranks_phrase(ranks)}",
            why="With broadcast_buffers=True every forward writes rank 0's buffers over the own ones, in place. The "
            "graph of the first forward still held one.",
            fix="DistributedDataParallel(model, broadcast_buffers=False); or one forward over both inputs: "
            "model(torch.cat([a, b]))",
            ranks=ranks,
            where=first.at,
            evidence=(
                *last_lines(raised),
                Evidence("buffers: " + ", ".join(wrapper.buffers[:8])),
            ),
        )


def _forwarded_twice(one: Recording) -> Wrapper | None:
    """The wrapper with buffers to broadcast that had two forwards since the last update."""
    forwards = one.trailing.forwards if one.trailing else ()
    for wrapper in one.wrappers:
        through = [forward for forward in forwards if forward.wrapper == wrapper.index and not forward.around]
        if wrapper.buffers and wrapper.flags.get("broadcast_buffers", True) and len(through) > 1:
            return wrapper
    return None

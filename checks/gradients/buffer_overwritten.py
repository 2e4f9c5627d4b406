from collections.abc import Mapping

from ddpdoctor.check import Check, Evidence, Finding, Judgement, NotMeasured, Passed
from ddpdoctor.failures import Message
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Collective, Wrapper
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, of_model
from ddpdoctor.trace.raised import last_lines, place, raised_as, with_victims

_SPREAD = ("broadcast", "all_reduce")
_OF_A_BUFFER = (
    r"modified by an inplace operation: \[torch\.(?:cuda\.)?(?:\w*FloatTensor \[\d+\]|LongTensor \[\])"
)
"""One dimension, or the counter of BatchNorm: a weight has more of them."""


class BufferOverwritten(Check):
    """DDP's broadcast of buffers overwrote what a pending backward still needs.

    What it finds:
        The error "modified by an inplace operation" in a backward that follows two forwards through a wrapper
        whose module has buffers, BatchNorm's statistics for instance, or a broadcast of buffers by the script.

    Why it matters:
        Each forward begins by writing rank 0's buffers over those of the other ranks, in place. Where a first
        forward's graph still waits for its backward and holds a buffer, autograd finds it changed and stops.
        Run on one GPU without DDP, the same script works. The DDP of torch 2.13 hides its own broadcast from
        autograd, which then finds nothing changed; a broadcast that the script makes, autograd finds there too.

    Example:
        A GAN's discriminator, with BatchNorm, sees real and fake images before one backward:
            loss = criterion(disc(real), ones) + criterion(disc(fake), zeros)
            loss.backward()

    Fix:
        DistributedDataParallel(disc, broadcast_buffers=False); or one forward over both:
        disc(torch.cat([real, fake])). A broadcast of the script's own goes after the backward, or before the forward.
    """

    code = "DD215"
    title = "no buffer is overwritten under a pending backward"
    raises = ()  # only where a wrapper had buffers to broadcast; else it is the script's own
    messages = (
        Message(
            _OF_A_BUFFER,
            headline="a backward found a tensor of the size of a buffer changed in place",
            likely=True,
        ),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, r"RuntimeError: .*modified by an inplace operation")
        recordings = trace.recordings()
        for rank in raised:
            if overwriting := _overwriting(recordings[rank]):
                return self._overwritten(trace, raised, *overwriting)
        trace.training()
        if not any(wrapper.buffers for recording in recordings.values() for wrapper in recording.wrappers):
            raise NotMeasured("no wrapped module has buffers")
        return Passed("no backward found its buffers changed")

    def _overwritten(
        self, trace: Trace, raised: Mapping[int, Raised], wrapper: Wrapper, by: Collective | None
    ) -> Finding:
        ranks = with_victims(trace, raised)
        what = "a broadcast of buffers" if by else f"a second forward of {wrapper.module}"
        return self.fail(
            f"{what} overwrote {plural(len(wrapper.buffers), 'buffer')} before the backward of the forward "
            f"that used them on {ranks_phrase(ranks)}",
            ranks=ranks,
            where=place(trace, raised),
            evidence=(
                *last_lines(raised),
                *([Evidence(f"the broadcast: {by.at}", where=by.at)] if by and by.at else []),
                "buffers: " + listing(wrapper.buffers),
            ),
            about=of_model(wrapper),
        )


def _overwriting(recording: Recording) -> tuple[Wrapper, Collective | None] | None:
    """The wrapper whose buffers were written over between a forward and its backward, and the script's broadcast."""
    step = recording.trailing
    for wrapper in recording.wrappers if step else ():
        assert step is not None
        forwards = [it for it in step.forwards if it.wrapper == wrapper.index and not it.around]
        if not wrapper.buffers or not forwards:
            continue
        if wrapper.flags.get("broadcast_buffers", True) and len(forwards) > 1:
            return wrapper, None
        by = [call for call in step.collectives if call.operation in _SPREAD and call.time > forwards[0].time]
        if by:
            return wrapper, by[-1]
    return None

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.failures import Message
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Conversion
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace, by_line, on_each_rank
from ddpdoctor.trace.raised import last_lines, raised_as, raised_by, with_victims


class SyncbatchnormOrder(Check):
    """SyncBatchNorm is converted after the wrap, or used on the CPU.

    What it finds:
        convert_sync_batchnorm called on a model that is wrapped already; and SyncBatchNorm on the CPU, where DDP's
        constructor or the first forward in train mode raises an error.

    Why it matters:
        The conversion makes new modules. A wrapper, an optimizer or a copy made before knows the old ones, and what
        becomes of that depends on the version of torch. On the CPU SyncBatchNorm does not work at all.

    Example:
        The two lines are in the wrong order:
            model = DistributedDataParallel(model, device_ids=[local_rank])
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)

    Fix:
        Convert first, then move, then wrap:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(local_rank)
            model = DistributedDataParallel(model, device_ids=[local_rank])
    """

    code = "DD221"
    title = "SyncBatchNorm is converted before the wrap, for a GPU"
    messages = (
        Message(
            r"SyncBatchNorm (?:expected input tensor to be on|is only supported)",
            headline="SyncBatchNorm was given input that it does not work on",
        ),
    )
    raises = (
        r"SyncBatchNorm layers only work with GPU modules",
        r"SyncBatchNorm expected input tensor to be on GPU",
    )

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        conversions = on_each_rank(trace.recordings(), lambda recording: recording.events(Conversion))
        late = [it for it in conversions if it[1].wrapped and it[1].layers]
        if late:
            return [self._late(of_line, raised) for of_line in by_line(late)]
        if raised:
            return self.fail(
                f"SyncBatchNorm runs on the CPU on {ranks_phrase(with_victims(trace, raised))}",
                **raised_by(trace, raised),
            )
        self.require(conversions, "no layer was converted to SyncBatchNorm")
        return Passed("BatchNorm was converted before the wrap")

    def _late(self, late: dict[int, Conversion], raised: dict[int, Raised]) -> Finding:
        first = next(iter(late.values()))
        finding = self.fail if raised else self.warn
        return finding(
            f"BatchNorm is converted to SyncBatchNorm after the wrap on {ranks_phrase(late)}",
            ranks=tuple(late),
            where=first.at,
            evidence=(
                Evidence(f"{first.layers} BatchNorm layers converted", tuple(late)),
                *last_lines(raised),
            ),
        )

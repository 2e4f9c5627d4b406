from ddpdoctor.check import Check
from ddpdoctor.logs.log import UNSAID, Log, Raised, told_by
from ddpdoctor.model import Family, Judgement

_FAULT = (
    r"(?P<fault>an illegal memory access was encountered|device-side assert triggered|unspecified launch failure"
    r"|misaligned address|an illegal instruction was encountered|invalid program counter|operation not supported on "
    r"global/shared address space|Memory access fault by GPU)"
)
_ASSERT = r"Assertion `(?P<fault>.{1,200}?)` failed"


class KernelFault(Check):
    """A kernel on the GPU failed, and something else reports it.

    What it finds:
        An illegal memory access, a device-side assertion or their kin. The watchdog of NCCL, or the next call that
        waits for the GPU, is the messenger.

    Why it matters:
        Kernels run later than the call that starts them, so the traceback points at an innocent line, often a
        collective, and NCCL gets the blame.

    Example:
        A label outside the number of classes: device-side assert in the loss, reported by the all-reduce.

    Fix:
        Run once with CUDA_LAUNCH_BLOCKING=1, which makes the traceback point at the call; compute-sanitizer finds the
        access.
    """

    code = "DD809"
    name = "kernel-fault"
    family = Family.GPU
    title = "no kernel fails"
    raises = (_FAULT,)
    log_words = (
        "illegal memory access",
        "device-side assert",
        "launch failure",
        "misaligned address",
        "Memory access fault",
        "Assertion `",
    )

    def examine_log(self, log: Log) -> Judgement:
        fault = log.told(_FAULT)
        if fault is None:
            return UNSAID
        told = log.told(_ASSERT) or fault
        asserted = told.match.re.pattern == _ASSERT
        raised = next((one for one in told.by if isinstance(one, Raised)), None)
        where = " in the code that its traceback shows" if raised and raised.frames else ""
        return self.fail(
            f"a GPU kernel asserted {told.match['fault']!r}"
            if asserted
            else f"a GPU kernel failed{where}: {told.match['fault']}",
            why="The kernel ran after the call that started it, so what reports it, a watchdog or a "
            "collective, is the messenger, and NCCL is not at fault.",
            fix="CUDA_LAUNCH_BLOCKING=1 torchrun ...     # the traceback then ends at the call\n"
            "compute-sanitizer python train.py; after a device-side assert look at labels and indices first",
            **told_by(*told.by, *fault.by),
        )

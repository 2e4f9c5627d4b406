from ddpdoctor.check import Check, Judgement
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, log_fields
from ddpdoctor.text import ranks_phrase

_OF_AMD = (
    r"Memory access fault by GPU"
    r"|HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_\w+|ILLEGAL_INSTRUCTION|INVALID_ISA|INVALID_PACKET_FORMAT)"
)
_FAULT = (
    r"(?P<fault>an illegal memory access was encountered|device-side assert triggered|unspecified launch failure"
    r"|misaligned address|an illegal instruction was encountered|invalid program counter|operation not supported on "
    rf"global/shared address space|{_OF_AMD})"
)
_FIX_OF_AMD = (
    "AMD_SERIALIZE_KERNEL=3 AMD_SERIALIZE_COPY=3 torchrun ...     # the traceback then points to the call"
)
_ASSERT = r"Assertion `(?P<fault>.{1,200}?)` failed"


class KernelFault(Check):
    """A GPU kernel failed, and a later call reports it.

    What it finds:
        An illegal memory access, a device-side assertion or a similar fault, which NCCL's watchdog or the next call
        that waits for the GPU reports.

    Why it matters:
        Kernels run later than the call that launches them, so the traceback points to another line, often a collective,
        although NCCL is not the cause.

    Example:
        A label outside the number of classes: device-side assert in the loss, reported by the all-reduce.

    Fix:
        Make the traceback point to the call, or find the access. After a device-side assert, check labels and indices:
            CUDA_LAUNCH_BLOCKING=1 torchrun ...
            compute-sanitizer python train.py
    """

    code = "DD809"
    title = "no GPU kernel fails"
    raises = (_FAULT,)
    log_words = ("Assertion `",)

    def examine_log(self, log: Log) -> Judgement:
        fault = log.search(_FAULT)
        if fault is None:
            return NOT_IN_OUTPUT
        reason = log.search(_ASSERT) or fault
        asserted = reason.match.re.pattern == _ASSERT
        raised = next((source for source in reason.sources if isinstance(source, Raised)), None)
        of_amd = log.first(rf"{_OF_AMD}|HIP ") is not None
        details = log_fields(reason, fault)
        kernel = "a GPU kernel" + (f" of {ranks_phrase(details['ranks'])}" if details["ranks"] else "")
        where = " in the code that its traceback shows" if raised and raised.frames else ""
        return self.fail(
            f"{kernel} asserted {reason.match['fault']!r}"
            if asserted
            else f"{kernel} failed{where}: {reason.match['fault']}",
            **({"fix": _FIX_OF_AMD} if of_amd else {}),
            **details,
        )

import re

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Judgement, Passed, Skipped
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import raised_as, raised_by

_OUT = (
    r"CUDA out of memory|CUDA error: out of memory|Cuda failure.{0,12}'?out of memory|HIP out of memory"
    r"|Failed to CUDA (?:calloc|malloc)|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED"
)
_TRIED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_GPU = re.compile(r"GPU (\d+)")
_CAPACITY = re.compile(r"total capacity of ([\d.]+ \w+)|([\d.]+ \w+) total capacity")
_OTHERS = re.compile(r"Process (\d+) has ([\d.]+ \w+) memory in use")

_FIX = (
    "nvidia-smi     # who holds the memory\na smaller batch per rank with gradient accumulation, bf16, "
    'activation checkpointing\ntorch.load(path, map_location="cpu")     # a copy on GPU 0 from every rank'
)


class GpuOutOfMemory(Check):
    """A rank ran out of GPU memory.

    What it finds:
        The rank that ran out, on which GPU, what it asked for, and the other processes that held memory there.

    Why it matters:
        One rank that runs out ends the job; the others report a lost connection. Where another process holds the
        memory, the rank's own use is not the problem.

    Example:
        Ranks that load a checkpoint without map_location hold a copy on GPU 0, which then ends rank 0.

    Fix:
        Look at who holds the memory first (nvidia-smi). Then: a smaller batch, gradient accumulation, bf16,
        activation checkpointing; map_location="cpu" for checkpoints.
    """

    code = "DD806"
    title = "there is enough GPU memory for the ranks"
    raises = (_OUT,)
    explained_by = ("DD803",)
    log_words = ("out of memory", "Failed to CUDA")

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        if not raised:
            if trace.broken:
                raise NotMeasured(trace.broken)
            if trace.rehearsal or not _on_gpus(trace):
                return Skipped("no rank worked on a GPU")
            return Passed("no rank ran out of GPU memory")
        first = next(iter(raised.values()))
        return self.fail(
            f"{ranks_phrase(raised)} ran out of memory on {_gpu(first.message)}{_tried(first.message)}",
            why=_why(first.message),
            fix=_FIX,
            **raised_by(trace, raised, ranks=raised),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_OUT)
        details = log_fields(reason)
        who = ranks_phrase(details["ranks"]) if details["ranks"] else "a rank"
        return self.fail(
            f"{who} ran out of memory on {_gpu(reason.match.string)}{_tried(reason.match.string)}",
            why=_why(reason.match.string),
            fix=_FIX,
            **details,
        )


def _on_gpus(trace: Trace) -> bool:
    wrappers = (wrapper for recording in trace.recordings().values() for wrapper in recording.wrappers)
    return any(
        parameter.device.startswith("cuda") for wrapper in wrappers for parameter in wrapper.parameters
    )


def _why(message: str) -> str:
    others = _OTHERS.findall(message)
    held = "; ".join(f"process {pid} held {size} of it" for pid, size in others)
    return f"The GPU had no more to give{': ' + held if held else ''}. " + (
        "Memory that another process holds is that of a rank on the wrong GPU, or of an earlier run."
        if others
        else "Weights, gradients, optimizer state and the batch's activations have to fit together."
    )


def _gpu(message: str) -> str:
    found, total = _GPU.search(message), _CAPACITY.search(message)
    size = next(filter(None, total.groups())) if total else ""
    return (f"GPU {found[1]}" if found else "its GPU") + (f" ({size})" if size else "")


def _tried(message: str) -> str:
    match = _TRIED.search(message)
    return f", asking for {match[1]}" if match else ""

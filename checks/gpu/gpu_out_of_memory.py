import re
from typing import Any

from ddpdoctor.check import Check, Finding, Judgement, Passed
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import raised_as, raised_by

_OUT = (
    r"CUDA out of memory|CUDA error: out of memory|(?:Cuda|HIP) failure.{0,12}'?out of memory|HIP out of memory"
    r"|Failed to CUDA (?:calloc|malloc)|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|HSA_STATUS_ERROR_OUT_OF_RESOURCES"
)
_TRIED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_GPU = re.compile(r"GPU (\d+)")
_CAPACITY = re.compile(r"total capacity of ([\d.]+ \w+)|([\d.]+ \w+) total capacity")
_OTHERS = re.compile(r"Process (\d+) has ([\d.]+ \w+) memory in use")


class GpuOutOfMemory(Check):
    """A rank ran out of GPU memory.

    What it finds:
        The rank that ran out of memory, on which GPU, the size of the allocation, and the other processes that used
        memory there.

    Why it matters:
        One rank that runs out of memory ends the job; the others report a lost connection. If another process uses the
        memory, the rank's own use is not the problem.

    Example:
        Every rank loads a checkpoint without map_location, and so allocates a copy on GPU 0.

    Fix:
        See which processes use the memory. Then use a smaller batch per rank with gradient accumulation, bf16 or
        activation checkpointing, and load checkpoints to the CPU:
            nvidia-smi
            torch.load(path, map_location="cpu")
    """

    code = "DD806"
    title = "there is enough GPU memory for the ranks"
    raises = (_OUT,)
    explained_by = ("DD803",)

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        if not raised:
            trace.require_end()
            self.require(not trace.rehearsal and _on_gpus(trace), "no rank used a GPU")
            return Passed("no rank ran out of GPU memory")
        return self._full(next(iter(raised.values())).message, raised_by(trace, raised, ranks=raised))

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_OUT)
        return self._full(reason.match.string, log_fields(reason))

    def _full(self, message: str, details: dict[str, Any]) -> Finding:
        index, total, asked = (pattern.search(message) for pattern in (_GPU, _CAPACITY, _TRIED))
        size = f" ({total[1] or total[2]})" if total else ""
        gpu = (f"GPU {index[1]}" if index else "its GPU") + size
        tried = f", asking for {asked[1]}" if asked else ""
        why = "Weights, gradients, optimizer state and the activations of a batch have to fit into the GPU together."
        if used := "; ".join(f"process {pid} used {size}" for pid, size in _OTHERS.findall(message)):
            why = f"P{used[1:]}. Another process is a rank on the wrong GPU, or one of an earlier run."
        ranks = ranks_phrase(details["ranks"], "a rank")
        return self.fail(f"{ranks} ran out of memory on {gpu}{tried}", why=why, **details)


def _on_gpus(trace: Trace) -> bool:
    wrappers = (wrapper for recording in trace.recordings().values() for wrapper in recording.wrappers)
    return any(it.device.startswith("cuda") for wrapper in wrappers for it in wrapper.parameters)

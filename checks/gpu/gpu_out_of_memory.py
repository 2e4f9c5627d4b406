import re

from ddpdoctor.check import Check
from ddpdoctor.logs.log import UNSAID, Log, Told, told_by
from ddpdoctor.model import Family, Judgement
from ddpdoctor.text import ranks_phrase

_OUT = r"CUDA out of memory|CUDA error: out of memory|Cuda failure.{0,12}'?out of memory|HIP out of memory"
_TRIED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_GPU = re.compile(r"GPU (\d+)")
_CAPACITY = re.compile(r"total capacity of ([\d.]+ \w+)|([\d.]+ \w+) total capacity")
_OTHERS = re.compile(r"Process (\d+) has ([\d.]+ \w+) memory in use")


class GpuOutOfMemory(Check):
    """A GPU had no memory left for a rank.

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
    name = "gpu-out-of-memory"
    family = Family.GPU
    title = "GPU memory holds the ranks"
    raises = (_OUT,)
    log_words = ("out of memory",)

    def examine_log(self, log: Log) -> Judgement:
        told = log.told(_OUT)
        if told is None:
            return UNSAID
        said = told_by(*told.by)
        who = ranks_phrase(said["ranks"]) if said["ranks"] else "a rank"
        others = _OTHERS.findall(told.match.string)
        held = "; ".join(f"process {pid} held {size} of it" for pid, size in others)
        return [
            self.fail(
                f"{who} ran out of memory on {_gpu(told)}{_tried(told)}",
                why=f"The GPU had no more to give{': ' + held if held else ''}. "
                + (
                    "Memory that another process holds is that of a rank on the wrong GPU, or of an earlier run."
                    if others
                    else "Weights, gradients, optimizer state and the batch's activations have to fit together."
                ),
                fix="nvidia-smi     # who holds the memory\na smaller batch per rank with gradient "
                "accumulation, bf16, "
                'activation checkpointing\ntorch.load(path, map_location="cpu")     # a copy on GPU 0 from every rank',
                **said,
            )
        ]


def _gpu(told: Told) -> str:
    found, total = _GPU.search(told.match.string), _CAPACITY.search(told.match.string)
    size = next(filter(None, total.groups())) if total else ""
    return (f"GPU {found[1]}" if found else "its GPU") + (f" ({size})" if size else "")


def _tried(told: Told) -> str:
    found = _TRIED.search(told.match.string)
    return f", asking for {found[1]}" if found else ""

import re

from ddpdoctor.check import Check
from ddpdoctor.logs.log import UNSAID, Line, Log, told_by
from ddpdoctor.model import Confidence, Family, Judgement

_ROW = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d+)\s+C(?:\+G)?\s+\S.*?\s(?P<size>\d+)MiB\s+\|"
)


class EveryRankOnGpu0(Check):
    """Every rank holds memory on GPU 0.

    What it finds:
        In nvidia-smi's table, several processes of the job on GPU 0: only there, or beside the GPU that each has of
        its own.

    Why it matters:
        GPU 0 runs out of memory first, and each process there costs a context of some 500 MiB. Where all work is on
        GPU 0, the others are idle.

    Example:
        torch.load(path)              # restores tensors to the GPU they were saved from, which is GPU 0
        tensor.cuda()                 # before torch.cuda.set_device(local_rank)

    Fix:
        torch.cuda.set_device(local_rank) before anything else, and torch.load(path, map_location="cpu").
    """

    code = "DD803"
    name = "every-rank-on-gpu-0"
    family = Family.GPU
    title = "each rank keeps to its GPU"
    log_words = ("MiB |",)

    def examine_log(self, log: Log) -> Judgement:
        gpus: dict[int, set[int]] = {}
        lines: dict[int, Line] = {}
        for line in log.lines:
            row = _ROW.search(line.text)
            if row:
                gpus.setdefault(int(row["pid"]), set()).add(int(row["gpu"]))
                if row["gpu"] == "0":
                    lines[int(row["pid"])] = line
        strangers = sorted(pid for pid, used in gpus.items() if 0 in used and len(used) > 1)
        if len(strangers) < 2:
            return UNSAID  # processes on GPU 0 alone may be jobs of their own
        return [
            self.fail(
                f"{len(strangers)} processes that work on other GPUs hold memory on GPU 0 too",
                why="Something put tensors on GPU 0 in every process: a checkpoint loaded without map_location, which "
                "restores to the GPU it was saved from, or a .cuda() before the process had chosen its GPU.",
                fix='torch.load(path, map_location="cpu")\n'
                "torch.cuda.set_device(local_rank)     # before anything else that uses CUDA",
                confidence=Confidence.LIKELY,
                **told_by(*(lines[pid] for pid in strangers)),
            )
        ]

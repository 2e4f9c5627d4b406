from collections.abc import Mapping

from ddpdoctor.check import Check, Finding, Judgement, Passed
from ddpdoctor.recorder.patches.calls import GatheredObject
from ddpdoctor.text import plural, ranks_phrase, size
from ddpdoctor.trace import Trace, by_line, on_each_rank, on_ranks

MUCH = 1 << 30
"""Bytes that arrive at each rank in one call; pickled, and again as objects."""


class GatheredObjects(Check):
    """all_gather_object gives every rank more than it can hold, because it grows with the number of ranks.

    What it finds:
        Calls of all_gather_object in which the objects of all ranks together take a GiB or more on every rank: what
        the largest rank gave, times the number of ranks.

    Why it matters:
        Each rank receives the pickled objects of all, as a tensor on its GPU with nccl, and unpickles every one of
        them. What is a few megabytes on two ranks is gigabytes on each of 512, eight times over on each host, and ends
        in an out-of-memory error or in minutes of unpickling.

    Example:
        dist.all_gather_object(everything, predictions)     # 4 MiB on each of 512 ranks: 2 GiB on every rank

    Fix:
        Reduce numbers instead of gathering what they are computed from, or gather on one rank only:
            dist.all_reduce(correct)
            dist.gather_object(predictions, parts if rank == 0 else None, dst=0)
    """

    code = "DD608"
    title = "gathered objects fit on every rank"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        ranks = trace.world_size or len(recordings)
        gathered = on_each_rank(recordings, lambda recording: recording.events(GatheredObject))
        self.require(gathered, "no large object was gathered on all ranks")
        much = ((rank, object_) for rank, object_ in gathered if object_.bytes * ranks >= MUCH)
        lines = [self._much(of_line, ranks) for of_line in by_line(much)]
        most = max(object_.bytes for _, object_ in gathered)
        return lines or Passed(f"all_gather_object gives each rank {size(most * ranks)} at most")

    def _much(self, gathered: Mapping[int, GatheredObject], ranks: int) -> Finding:
        most = max(object_.bytes for object_ in gathered.values())
        return self.warn(
            f"each of {plural(ranks, 'rank')} receives {size(most * ranks)} from all_gather_object",
            why=f"{ranks_phrase(gathered)} sent up to {size(most)}, and every rank receives and "
            f"unpickles what all {ranks} ranks send. It grows with the number of ranks.",
            **on_ranks(gathered, lambda object_: f"gave {size(object_.bytes)}"),
        )

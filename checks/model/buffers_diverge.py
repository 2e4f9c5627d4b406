from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Finding, Judgement, Passed
from ddpdoctor.recorder.events.training import Buffers, Wrapper
from ddpdoctor.text import differ, listing, plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import of_model
from ddpdoctor.trace.sync import Group, differing, replicas


class BuffersDiverge(Check):
    """Ranks evaluate with buffers that differ.

    What it finds:
        Buffers of a model wrapped with broadcast_buffers=False, BatchNorm's running statistics for instance, that
        differ between ranks which all evaluate with it.

    Why it matters:
        Weights are equal, and the ranks still hold different models: each normalises with the statistics of its own
        data. A metric over all ranks mixes them, and the checkpoint has those of one.

    Example:
        broadcast_buffers was switched off against an error, and stayed off:
            model = DistributedDataParallel(net, broadcast_buffers=False)
            ...
            model.eval()
            accuracy = evaluate(model, shard_of_this_rank)

    Fix:
        Make them equal before evaluating: for buffer in model.buffers(): dist.broadcast(buffer, src=0). Or use
        SyncBatchNorm, or leave broadcast_buffers at its default.
    """

    code = "DD216"
    title = "ranks evaluate with equal buffers"
    explained_by = ("DD201", "DD202", "DD205", "DD206", "DD207", "DD225", "DD227")

    def examine_run(self, trace: Trace) -> Judgement:
        evaluated = [pair for group in replicas(trace) for pair in _evaluated(group)]
        if not evaluated:
            raise NotMeasured("no two ranks evaluated a model with buffers that are not broadcast")
        diverging: dict[int, Finding] = {}
        for wrapper, row in evaluated:
            unequal = differing({rank: buffers.digests for rank, buffers in row.items()})
            if unequal and wrapper.index not in diverging:
                diverging[wrapper.index] = self._diverge(wrapper, row, unequal)
        return list(diverging.values()) or Passed(
            f"buffers were equal in {plural(len(evaluated), 'evaluation')}"
        )

    def _diverge(self, wrapper: Wrapper, row: Mapping[int, Buffers], unequal: tuple[str, ...]) -> Finding:
        first = next(iter(row.values()))
        return self.fail(
            f"{ranks_phrase(row)} evaluate {wrapper.module} with buffers of their own: "
            f"{differ(len(unequal), len(first.digests), 'buffer')}",
            why="broadcast_buffers=False leaves every rank with the statistics of its own data. What one "
            "rank measures is not what another would, and the checkpoint holds the buffers of one.",
            fix="for buffer in model.buffers():    # before evaluating\n    dist.broadcast(buffer, src=0)",
            ranks=tuple(row),
            where=first.at,
            evidence=(Evidence(f"differ: {listing(unequal)}", tuple(row)),),
            about=of_model(wrapper),
        )


def _evaluated(group: Group) -> Iterator[tuple[Wrapper, dict[int, Buffers]]]:
    """The buffers at each evaluation that several ranks did, where nothing broadcasts them."""
    for wrapper in next(iter(group.values())).wrappers:
        if wrapper.flags.get("broadcast_buffers", True) or not wrapper.buffers:
            continue
        by_rank = {
            rank: [
                buffers
                for buffers in recording.events(Buffers)
                if buffers.wrapper == wrapper.index and buffers.when == "evaluation"
            ]
            for rank, recording in group.items()
        }
        by_rank = {rank: buffers for rank, buffers in by_rank.items() if buffers}
        if len(by_rank) > 1:
            for buffers in zip(*by_rank.values(), strict=False):
                yield wrapper, dict(zip(by_rank, buffers, strict=True))

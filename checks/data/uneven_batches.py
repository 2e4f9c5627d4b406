from ddpdoctor.check import Check
from ddpdoctor.group.answers import replicas_differ, require_right_answers
from ddpdoctor.group.record import GroupRecord
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.shards import Stall, predict_stall
from ddpdoctor.text import ranks_phrase


class UnevenBatches(Check):
    """Ranks run different numbers of batches, and those with more wait for those with fewer.

    What it finds:
        Shards that give ranks different numbers of batches in one pass: which ranks run out, in which batch
        the others would wait for them, and whether torch's Join, which is made for this, works here.

    Why it matters:
        Each backward of DDP is a collective of all ranks. A rank that has left the loop does not take part, so
        the others wait in their last batch until the timeout, 10 or 30 minutes; or their collective meets the
        next one of the rank that went on, an evaluation or a barrier, and the results are wrong.

    Example:
        Shards cut by hand, 13 samples for rank 0 and 12 for rank 1:
            loader = DataLoader(dataset[rank::world_size], batch_size=4)     # 4 batches, and 3

    Fix:
        Give every rank as many batches: DistributedSampler does (padding, or drop_last=True). Where the data
        cannot be divided evenly, train under Join:
            with Join([model]):
                for batch in loader:
                    step(batch)
    """

    code = "DD106"
    name = "uneven-batches"
    family = Family.DATA
    title = "uneven batches do not stall the group"
    measurements = ("uneven",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        require_right_answers(ranks)
        values = ranks.values("uneven")
        if replicas_differ(ranks):
            raise NotMeasured("replicas differ (DD206)")
        if any(value["ran"] is None for value in values.values()):
            raise NotMeasured("all_reduce does not count the ranks, which Join relies on (DD313)")
        batches = {rank: value["batches"] for rank, value in values.items()}
        stall = predict_stall(batches)
        if stall is None:
            return Skipped("one rank has nobody to wait for")
        short = {rank: value["ran"] for rank, value in values.items() if value["ran"] != batches[rank]}
        different = [rank for rank, value in values.items() if value["difference"]]
        if short or different:
            return [self._join_fails(short, different, batches)]
        return Passed(_passed(stall, batches))

    def _join_fails(self, short: dict[int, int], different: list[int], batches: dict[int, int]) -> Finding:
        if short:
            rank, ran = next(iter(short.items()))
            headline = f"rank {rank} ran {ran} of its {batches[rank]} batches under Join"
        else:
            headline = (
                f"the weights of {ranks_phrase(different)} differ from rank 0's after training under Join"
            )
        return self.fail(
            headline,
            why="Join lets ranks that have run out of batches take part in the collectives of the others, and "
            "then sends them the final weights. Here it did not, so uneven shards cannot be trained on.",
            fix="give every rank as many batches: DistributedSampler(dataset, drop_last=True)",
            ranks=tuple(short or different),
            evidence=tuple(
                Evidence(f"{count} batches in its shard", (rank,)) for rank, count in batches.items()
            ),
        )


def _passed(stall: Stall, batches: dict[int, int]) -> str:
    waits = "waits" if len(stall.waiting) == 1 else "wait"
    return (
        f"Join carries ranks with {max(batches.values())} and {min(batches.values())} batches to the end; without "
        f"it {ranks_phrase(stall.waiting)} {waits} in batch {stall.batch + 1} for {ranks_phrase(stall.ended)}"
    )

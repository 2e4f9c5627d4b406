from ddpdoctor.check import Check
from ddpdoctor.group.record import GroupRecord
from ddpdoctor.model import Family, Finding, Judgement, Passed
from ddpdoctor.text import ranks_phrase


class SetEpochMissing(Check):
    """A shuffling sampler gives the same order in every epoch.

    What it finds:
        Two training passes that draw the same indices in the same order from a sampler that shuffles, because
        set_epoch was not called between them, or was given the same number, or does not work.

    Why it matters:
        DistributedSampler shuffles with seed + epoch, so that all ranks agree without talking. Without set_epoch
        the epoch stays 0: every epoch has the same batches in the same order, and every rank sees the same part
        of the data again and again. Training runs, and generalises worse.

    Example:
        for epoch in range(10):
            for batch in loader:                 # DistributedSampler(shuffle=True), never told the epoch
                step(batch)

    Fix:
        Tell the sampler the epoch before each pass:
            for epoch in range(10):
                sampler.set_epoch(epoch)
                for batch in loader:
                    step(batch)
    """

    code = "DD103"
    name = "set-epoch-missing"
    family = Family.DATA
    title = "samplers shuffle anew in each epoch"
    measurements = ("sampler",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("sampler")
        stuck = [rank for rank, value in values.items() if value["epoch_1"] == value["epoch_0"]]
        if stuck:
            return [self._stuck(stuck)]
        unstable = [rank for rank, value in values.items() if value["again"] != value["epoch_0"]]
        if unstable:
            return [self._unstable(unstable)]
        return Passed("DistributedSampler shuffles anew after set_epoch, and repeats its order without it")

    def _stuck(self, ranks: list[int]) -> Finding:
        return self.fail(
            f"DistributedSampler gives {ranks_phrase(ranks)} the same order after set_epoch(1) as in epoch 0",
            why="The order is drawn from seed + epoch. Where set_epoch has no effect, every epoch has the same "
            "batches in the same order.",
            fix="see whether a package replaces torch.utils.data.DistributedSampler, and reinstall torch: "
            "pip install --force-reinstall torch",
            ranks=tuple(ranks),
        )

    def _unstable(self, ranks: list[int]) -> Finding:
        return self.fail(
            f"DistributedSampler gives {ranks_phrase(ranks)} another order in a second pass of the same epoch",
            why="All ranks draw one order from seed + epoch and take every n-th index of it. Where the order depends "
            "on something else, their shards overlap.",
            fix="see whether a package replaces torch.utils.data.DistributedSampler, and reinstall torch: "
            "pip install --force-reinstall torch",
            ranks=tuple(ranks),
        )

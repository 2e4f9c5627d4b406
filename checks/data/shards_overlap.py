from ddpdoctor.check import Check
from ddpdoctor.group.record import GroupRecord
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.shards import Cover, cover
from ddpdoctor.text import plural

PASSES = {"epoch_0": "epoch 0", "epoch_1": "epoch 1"}
SHOWN = 8


class ShardsOverlap(Check):
    """Ranks train on the same samples, and on others never.

    What it finds:
        Samples that several ranks draw in one pass, beyond the few that pad the shards to one length, or
        samples that no rank draws: the samplers' seeds differ between ranks, or the order of the dataset does.

    Why it matters:
        DistributedSampler divides one order among the ranks. Ranks that shuffle differently divide different
        orders: with two ranks a quarter of the samples is seen twice in an epoch and a quarter not at all.
        Nothing fails.

    Example:
        A seed of its own on each rank, where the sampler needs one that all share:
            DistributedSampler(dataset, seed=args.seed + rank)
        A list of files in whatever order the filesystem gives it, different on each host:
            files = os.listdir(folder)

    Fix:
        Give all samplers the same seed, and put the dataset in the same order everywhere:
            DistributedSampler(dataset, seed=args.seed)
            files = sorted(os.listdir(folder))
    """

    code = "DD104"
    name = "shards-overlap"
    family = Family.DATA
    title = "ranks draw different samples"
    measurements = ("sampler",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("sampler")
        if len(values) == 1:
            return Skipped("one rank draws every sample")
        samples = values[0]["samples"]
        for key, name in PASSES.items():
            shards = {rank: value[key] for rank, value in values.items()}
            found = cover(shards, samples)
            if found.overlaps or found.missing:
                return [self._overlap(found, name, samples, tuple(shards))]
        return Passed(
            f"DistributedSampler divides {samples} samples among {len(values)} ranks, "
            f"{found.surplus} repeated as padding"
        )

    def _overlap(self, found: Cover, name: str, samples: int, ranks: tuple[int, ...]) -> Finding:
        return self.fail(
            f"DistributedSampler repeats {plural(found.surplus, 'sample')} and leaves out {len(found.missing)} "
            f"of {samples} in {name}",
            why=f"Shards of {samples} samples for {len(ranks)} ranks need {found.padding} repeated as padding. "
            "More means that the ranks do not divide one common order.",
            fix="see whether a package replaces torch.utils.data.DistributedSampler or torch's random generator, "
            "and reinstall torch: pip install --force-reinstall torch",
            ranks=ranks,
            evidence=tuple(
                Evidence(f"{what}: {_some(indices)}")
                for what, indices in (("drawn more than once", found.repeated), ("not drawn", found.missing))
                if indices
            ),
        )


def _some(indices: tuple[int, ...]) -> str:
    more = f" and {len(indices) - SHOWN} more" if len(indices) > SHOWN else ""
    return ", ".join(map(str, indices[:SHOWN])) + more

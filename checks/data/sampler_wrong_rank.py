from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.text import by_state, ranks_phrase
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.joint_training import dividing_groups
from ddpdoctor.trace.loading import SharedPass, by_loader, training_rounds
from ddpdoctor.trace.raised import raised_as, raised_by


class SamplerWrongRank(Check):
    """A sampler divides the data as if this were another rank, or another number of ranks.

    What it finds:
        Samplers that train and whose rank or num_replicas is not the process group's: LOCAL_RANK where the rank in
        the whole job belongs, the GPUs of one node where all ranks do, a constant, or a rank read before there is a
        process group. Ranks that average within a group of fewer are compared with that group, and nodes that each
        hold different data are left alone.

    Why it matters:
        The sampler takes every num_replicas-th sample, beginning with the rank-th. With another rank's number, two
        ranks train on the same samples; with too few replicas, nodes repeat each other; with too many, samples are
        never seen. Nothing fails, and on one node LOCAL_RANK is right by luck.

    Example:
        sampler = DistributedSampler(dataset, num_replicas=torch.cuda.device_count(),
                                     rank=int(os.environ["LOCAL_RANK"]))

    Fix:
        Give neither, and the sampler asks the process group; or ask it yourself:
            sampler = DistributedSampler(dataset)
            sampler = DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())
    """

    code = "DD105"
    title = "samplers have the rank and size of the group"
    raises = (r"^ValueError: Invalid rank \d+, rank should be in the interval \[0, \d+\]",)
    explained_by = ("DD227",)

    def examine_run(self, trace: Trace) -> Findings:
        if raised := raised_as(trace, *self.raises):
            yield self.fail(
                f"DistributedSampler rejects the rank of {ranks_phrase(raised)}: num_replicas is too small",
                why="num_replicas is the size of one node, or a constant, and the rank counts over the whole job. "
                "Ranks from num_replicas on fail here, and the others divide the data without them.",
                **raised_by(trace, raised, ranks=raised),
            )
            return
        rounds = [it for it in training_rounds(trace.training_of_several()) if _claims_to_divide(it)]
        self.require(rounds, "no sampler that divides samples among ranks trains")
        first = rounds[0]
        name = next(iter(first.samplers.values())).name
        for shared, wrong in by_loader(rounds, _wrong):
            rank, sampler = next(iter(wrong.items()))
            yield self.fail(
                f"the {sampler.name} of rank {rank} uses rank {sampler.rank} of {sampler.replicas}, and "
                f"it is rank {shared.members.index(rank)} of {len(shared.members)} in its group",
                why="The sampler takes every num_replicas-th sample, beginning with the rank-th. "
                f"{_consequence(shared)} Nothing fails.",
                ranks=tuple(wrong),
                where=shared.sampler_at,
                evidence=by_state(shared.samplers, lambda it: f"rank {it.rank} of {it.replicas}"),
                about=shared.about,
            )
        yield Passed(f"{name} divides among {len(first.members)} ranks, each with its own number")


def _claims_to_divide(shared: SharedPass) -> bool:
    samplers = shared.samplers
    return len(samplers) == len(shared.ranks) and all(
        sampler.distributed and None not in (sampler.rank, sampler.replicas) for sampler in samplers.values()
    )


def _wrong(shared: SharedPass) -> dict[int, Sampler]:
    """The samplers that fit no group of theirs; none where a smaller number of shards repeats on unlike datasets."""
    wrong = {
        rank: sampler
        for rank, sampler in shared.samplers.items()
        if (sampler.rank, sampler.replicas)
        not in {(shared.members.index(rank), len(shared.members)), *_places(shared.recordings[rank])}
    }
    return {} if shared.one_dataset is False and _repeats(shared) else wrong


def _places(recording: Recording) -> set[tuple[int | None, int | None]]:
    """The rank's number in, and the size of, each further group that may divide the data."""
    return {(group.rank, group.size) for group in dividing_groups(recording)}


def _repeats(shared: SharedPass) -> bool:
    """Whether all samplers divide by the same smaller number: each node, or rank, has data of its own."""
    replicas = {sampler.replicas for sampler in shared.samplers.values()}
    return len(replicas) == 1 and (replicas.pop() or 0) < len(shared.members)


def _consequence(shared: SharedPass) -> str:
    used = [(sampler.rank, sampler.replicas) for sampler in shared.samplers.values()]
    twice = [rank for rank in shared.ranks if used.count(used[shared.ranks.index(rank)]) > 1]
    if twice:
        return f"Here {ranks_phrase(twice)} train on the same samples as another rank."
    return "Here the parts do not make up the dataset: some samples are drawn twice, or never."

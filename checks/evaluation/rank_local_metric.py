import re
from collections.abc import Mapping
from dataclasses import dataclass

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped, Where
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase, shorten
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.loading import Round, evaluation_rounds
from ddpdoctor.trace.recording import Recording

NO_VALUES = ("barrier",)
"""Collectives that carry nothing from rank to rank."""
METRIC = re.compile(r"\d\.\d|\d\s*%|\d+\s*/\s*\d+|\bnan\b")


class RankLocalMetric(Check):
    """A number from one rank's part of the evaluation is taken for the whole.

    What it finds:
        Evaluation passes that are divided among the ranks, after which one rank prints the result, saves a
        checkpoint or steps a scheduler by it, while nothing was reduced or gathered over the ranks since the pass
        began. Evaluation of the whole set on one rank or on each, results gathered by any collective, through
        files of each rank's own, or by a metric library, are left alone.

    Why it matters:
        The number stands for a fraction of the held-out set: it is noisier than it looks, and the best checkpoint is
        the best on rank 0's part. Where every rank decides by its own number, ranks decide differently: schedulers
        drift apart, or one rank stops and the others wait for it.

    Example:
        for batch in held_out_loader:               # DistributedSampler: a part on each rank
            correct += ...
        if rank == 0:
            print(correct / total)                  # of rank 0's part

    Fix:
        Sum over the ranks, then divide:
            counts = torch.tensor([correct, total], dtype=torch.float64, device=device)
            dist.all_reduce(counts)
            accuracy = counts[0] / counts[1]
    """

    code = "DD502"
    name = "rank-local-metric"
    family = Family.EVALUATION
    title = "what ranks evaluate apart is reduced before it is used"
    explained_by = ("DD208", "DD225", "DD308")

    def examine_run(self, trace: Trace) -> Judgement:
        rounds = list(evaluation_rounds(trace.training_of_several()))
        if not rounds:
            return Skipped("ranks do not evaluate over a DataLoader together")
        parted = [one for one in rounds if _is_parted(one)]
        if not parted:
            return Skipped("the evaluation is not divided among the ranks")
        for one in parted:
            if not _is_exchanged(one) and (uses := _uses(one)):
                return self._local(one, uses)
        return Passed("what ranks evaluate apart is exchanged between them, or is not used")

    def _local(self, one: Round, uses: Mapping[int, "Use"]) -> Finding:
        use = next(iter(uses.values()))
        part = _part(one)
        return self.warn(
            f"{ranks_phrase(uses)} {use.what if len(uses) == 1 else use.what_several} after an evaluation of {part}, "
            "with nothing reduced over the ranks",
            why="Every rank evaluated a part of the held-out samples. Without a reduction the number stands for that "
            "part only, and other ranks have other numbers.",
            fix="counts = torch.tensor([correct, total], dtype=torch.float64, device=device)\n"
            "dist.all_reduce(counts)\naccuracy = counts[0] / counts[1]",
            ranks=tuple(uses),
            where=use.at,
            evidence=tuple(Evidence(own.seen, (rank,)) for rank, own in uses.items() if own.seen),
        )


@dataclass(frozen=True)
class Use:
    """What a rank does by the number that it has."""

    what: str
    what_several: str
    at: Where | None
    seen: str = ""


def _is_parted(one: Round) -> bool:
    """Whether each rank evaluates samples that another one does not."""
    if one.indices is None:
        contents = [set(own.content) for own in one.passes.values()]
        return all(contents) and not set.intersection(*contents)
    shards = [set(shard) for shard in one.indices.values()]
    if one.one_dataset is False and not one.divided:
        return True
    return len(shards) > 1 and all(shard != shards[0] for shard in shards[1:])


def _part(one: Round) -> str:
    samples = [len(shard) for shard in (one.indices or {}).values()]
    if not samples:
        return "its own part of the samples"
    return f"{max(samples)} of {len({i for shard in (one.indices or {}).values() for i in shard})} samples"


def _window(recording: Recording, own: Pass) -> tuple[float, float]:
    """From the beginning of the evaluation to the next training step or evaluation."""
    after = own.begin if own.end is None else own.end
    steps = (taken.time for step in recording.steps for taken in step.optimizer_steps)
    passes = (other.begin for other in recording.passes if other.training or other.loader == own.loader)
    return own.begin, min((time for time in (*steps, *passes) if time > after), default=float("inf"))


def _is_exchanged(one: Round) -> bool:
    """Whether a rank sent anything to another since the pass began, or left it in a file of its own."""
    files: set[str] = set()
    for rank, own in one.passes.items():
        begin, end = _window(one.recordings[rank], own)
        if any(
            begin <= call.time < end and not call.operation.endswith(NO_VALUES)
            for call in one.recordings[rank].collectives
        ):
            return True
        files |= {save.path for save in one.recordings[rank].saves if begin <= save.begin < end and save.path}
    return len(files) >= len(one.ranks)


def _uses(one: Round) -> dict[int, Use]:
    """What ranks do by their own number, the gravest first; that every rank prints its own is no use of it."""
    for look in (_scheduled, _saved, _printed):
        found = {
            rank: use
            for rank, own in one.passes.items()
            if (use := look(one.recordings[rank], *_window(one.recordings[rank], own)))
        }
        if found and (look is not _printed or len(found) < len(one.ranks)):
            return found
    return {}


def _scheduled(recording: Recording, begin: float, end: float) -> Use | None:
    before = [step for step in recording.steps if step.time < end]
    for taken in before[-1].schedulers if before else ():
        if taken.metric is not None:
            seen = f"metric {taken.metric:.6g}"
            return Use(
                f"steps {taken.name} by its own number",
                f"step {taken.name} by their own numbers",
                taken.at,
                seen,
            )
    return None


def _saved(recording: Recording, begin: float, end: float) -> Use | None:
    save = next((save for save in recording.saves if begin <= save.begin < end and save.path), None)
    return Use("saves a checkpoint", "save checkpoints", save.at) if save else None


def _printed(recording: Recording, begin: float, end: float) -> Use | None:
    said = (line for line in recording.printed if begin <= line.time < end and METRIC.search(line.text))
    line = next(said, None)
    return Use("prints the result", "print results", line.at, quote(shorten(line.text))) if line else None

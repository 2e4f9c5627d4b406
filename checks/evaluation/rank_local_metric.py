import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ddpdoctor.check import Check
from ddpdoctor.frameworks import Framework
from ddpdoctor.model import Finding, Judgement, Passed, Skipped, Subject, Where
from ddpdoctor.outliers import by_state
from ddpdoctor.recorder.events.files import Printed
from ddpdoctor.recorder.events.training import SchedulerStep
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
    """A metric of one rank's shard is used as the metric of the whole evaluation set.

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
    title = "metrics are reduced over the ranks before they are used"
    patches = ("reduced_metric",)
    fix_with: ClassVar[Mapping[Framework, str]] = {
        Framework.LIGHTNING: 'self.log("val_loss", loss, sync_dist=True)',
        Framework.FABRIC: 'accuracy = fabric.all_reduce(accuracy, reduce_op="mean")',
        Framework.ACCELERATE: "predictions, targets = accelerator.gather_for_metrics((predictions, targets))",
        Framework.IGNITE: "counts = idist.all_reduce(counts)    # or a metric of ignite.metrics, which does so itself",
    }
    explained_by = ("DD208", "DD225", "DD308")

    def examine_run(self, trace: Trace) -> Judgement:
        rounds = list(evaluation_rounds(trace.training_of_several()))
        if not rounds:
            return Skipped("ranks do not evaluate over a DataLoader together")
        divided = [shared for shared in rounds if _is_divided(shared)]
        if not divided:
            return Skipped("the evaluation is not divided among the ranks")
        return [self._local(shared, uses) for shared, uses in _gravest(divided)] or Passed(
            "what ranks evaluate apart is exchanged between them, or is not used"
        )

    def _local(self, shared: Round, uses: Mapping[int, "Use"]) -> Finding:
        use = next(iter(uses.values()))
        return self.warn(
            f"{ranks_phrase(uses)} {use.what if len(uses) == 1 else use.what_several} after an evaluation of "
            f"{_part(shared)}, with nothing reduced over the ranks",
            why="Every rank evaluated a part of the held-out samples. Without a reduction the metric is that of the "
            "part only, and differs between ranks.",
            fix="counts = torch.tensor([correct, total], dtype=torch.float64, device=device)\n"
            "dist.all_reduce(counts)\naccuracy = counts[0] / counts[1]",
            ranks=tuple(uses),
            where=use.at,
            evidence=by_state({rank: use.value for rank, use in uses.items() if use.value}),
            about=shared.about,
        )


@dataclass(frozen=True)
class Use:
    """What a rank does by the number that it has."""

    what: str
    what_several: str
    at: Where | None
    value: str = ""


_Look: TypeAlias = Callable[[Recording, float, float], Use | None]


def _is_divided(shared: Round) -> bool:
    """Whether each rank evaluates samples that another one does not."""
    if shared.indices is None:
        contents = [set(pass_.content) for pass_ in shared.passes.values()]
        return all(contents) and not set.intersection(*contents)
    shards = [set(shard) for shard in shared.indices.values()]
    if shared.one_dataset is False and not shared.divided:
        return True
    return len(shards) > 1 and all(shard != shards[0] for shard in shards[1:])


def _part(shared: Round) -> str:
    samples = [len(shard) for shard in (shared.indices or {}).values()]
    if not samples:
        return "its own part of the samples"
    return f"{max(samples)} of {len({i for shard in (shared.indices or {}).values() for i in shard})} samples"


def _window(recording: Recording, pass_: Pass) -> tuple[float, float]:
    """From the beginning of the evaluation to the next training step or evaluation."""
    after = pass_.begin if pass_.end is None else pass_.end
    steps = [forward.time for step in recording.steps for forward in step.forwards if forward.grad]
    steps += [update.time for step in recording.steps for update in step.optimizer_steps]
    passes = (other.begin for other in recording.passes if other.training or other.loader == pass_.loader)
    return pass_.begin, min((time for time in (*steps, *passes) if time > after), default=float("inf"))


def _is_exchanged(shared: Round) -> bool:
    """Whether a rank sent anything to another since the pass began, or each left it in a file of its own."""
    files: dict[int, set[str]] = {}
    for rank, recording in shared.recordings.items():
        begin, end = _window(recording, shared.passes[rank])
        calls = (
            call.operation
            for call in recording.collectives
            if begin <= call.time < end and not (call.weight_of or call.gradient_of)
        )
        if any(not operation.endswith(NO_VALUES) for operation in calls):
            return True
        files[rank] = {save.path for save in recording.saves if begin <= save.begin < end and save.path}
    counts = Counter(path for written in files.values() for path in written)
    return all(any(counts[path] == 1 for path in written) for written in files.values())


def _gravest(rounds: Iterable[Round]) -> list[tuple[Round, Mapping[int, Use]]]:
    """Of each loader the gravest use of a rank's own number, and the first round that shows it.

    A loader may be made anew on another line, and its number used on the same one: that is the same use.
    """
    gravest: dict[tuple[Subject, ...], tuple[int, Round, Mapping[int, Use]]] = {}
    for shared in rounds:
        if _is_exchanged(shared):
            continue
        for gravity, look in enumerate(_LOOKS):
            uses = _uses(shared, look)
            if uses and (shared.about not in gravest or gravity < gravest[shared.about][0]):
                gravest[shared.about] = gravity, shared, uses
    by_line: dict[object, tuple[Round, Mapping[int, Use]]] = {}
    for _, shared, made in gravest.values():
        by_line.setdefault(next(iter(made.values())).at or shared.about, (shared, made))
    return [*by_line.values()]


def _uses(shared: Round, look: _Look) -> dict[int, Use]:
    """What ranks do by their own number; that every rank prints its own is no use of it."""
    uses = {
        rank: use
        for rank, recording in shared.recordings.items()
        if (use := look(recording, *_window(recording, shared.passes[rank])))
    }
    return {} if look is _printed and len(uses) == len(shared.ranks) else uses


def _scheduled(recording: Recording, begin: float, end: float) -> Use | None:
    for call in recording.events(SchedulerStep):
        if begin <= call.time < end and call.metric is not None:
            one_rank, several = (
                f"steps {call.name} by its own metric",
                f"step {call.name} by their own metrics",
            )
            return Use(one_rank, several, call.at, f"metric {call.metric:.6g}")
    return None


def _saved(recording: Recording, begin: float, end: float) -> Use | None:
    save = next((save for save in recording.saves if begin <= save.begin < end and save.path), None)
    return Use("saves a checkpoint", "save checkpoints", save.at) if save else None


def _printed(recording: Recording, begin: float, end: float) -> Use | None:
    lines = (line for line in recording.events(Printed) if begin <= line.time < end)
    line = next((line for line in lines if METRIC.search(line.text)), None)
    return Use("prints the result", "print results", line.at, quote(shorten(line.text))) if line else None


_LOOKS: tuple[_Look, ...] = (_scheduled, _saved, _printed)
"""The gravest first."""

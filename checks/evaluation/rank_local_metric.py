import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import inf
from pathlib import PurePath
from typing import TypeAlias

from ddpdoctor.check import Check, Confidence, Findings, Kind, Passed, Subject, Where
from ddpdoctor.frameworks import by_framework
from ddpdoctor.recorder.events.files import Printed
from ddpdoctor.recorder.events.training import Collective, Forward
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.text import quote, ranks_phrase, shorten
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.evaluation_results import EvaluationResults
from ddpdoctor.trace.loading import SharedPass, evaluation_rounds
from ddpdoctor.unreached.values import used_of_a_part

NO_VALUES = ("barrier",)
"""Collectives that carry nothing from rank to rank."""
METRIC = re.compile(r"\d\.\d|\d\s*%|\d+\s*/\s*\d+|\bnan\b")
"""A number, in a line whose values cannot be followed."""
_PATH = re.compile(r"\S*/\S*/[^\s=]*")


class RankLocalMetric(Check):
    """A metric of one rank's shard is used as the metric of the whole evaluation set.

    What it finds:
        Evaluations that are divided among the ranks, by a sampler or by hand, after which one rank prints the result,
        chooses the best checkpoint or steps a scheduler by it, while nothing was reduced or gathered over the ranks
        since the evaluation began; a sum over a rank's part that each prints over the length of the whole set; and a
        metric that a function prints, or returns to who prints it, without reducing it, beside another one that it
        reduces. Evaluation of the whole set on one rank or on each, results gathered by any collective, through one
        file for each rank, or by a metric library, are left alone.

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
    fix_with = by_framework(
        lightning='self.log("val_loss", loss, sync_dist=True)',
        fabric='accuracy = fabric.all_reduce(accuracy, reduce_op="mean")',
        accelerate="predictions, targets = accelerator.gather_for_metrics((predictions, targets))",
        ignite="counts = idist.all_reduce(counts)    # or a metric of ignite.metrics, which does so itself",
    )
    explained_by = ("DD208", "DD225", "DD308")
    unreached = (used_of_a_part, "{what} is of this rank's part of the evaluation set only")

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.training_of_several()
        rounds = list(evaluation_rounds(recordings))
        by_hand = list(_evaluations_by_hand(recordings))
        self.require(rounds or by_hand, "ranks do not evaluate together")
        divided = [_evaluation(shared) for shared in rounds if _is_divided(shared)] + by_hand
        self.require(divided, "the evaluation is not divided among the ranks")
        for evaluation, uses in _gravest(divided):
            use = next(iter(uses.values()))
            yield self.warn(
                f"{ranks_phrase(uses)} {use.what if len(uses) == 1 else use.what_several} after an evaluation of "
                f"{evaluation.part}, with {evaluation.reduced} reduced over the ranks",
                ranks=tuple(uses),
                where=use.at,
                evidence={rank: use.value for rank, use in uses.items() if use.value},
                about=evaluation.about,
                confidence=use.confidence,
            )
        yield Passed("metrics of a part of the samples are exchanged between ranks, or are not used")


@dataclass(frozen=True)
class Evaluation:
    """One that ranks divide, and the time in which its result may be used."""

    recordings: Mapping[int, Recording]
    windows: Mapping[int, tuple[float, float]]
    """Of each rank, from the beginning of the evaluation to the next training step or evaluation."""
    part: str
    """Of what a rank has evaluated, as a headline names it."""
    about: tuple[Subject, ...]
    ended: Mapping[int, float] = field(default_factory=dict)
    """When the pass of each rank ended; what is printed before tells of a batch."""
    by_hand: bool = False
    """Whether no DataLoader told that these are held-out samples: then more has to."""
    loop: Where | None = None
    loader: int = -1
    of_one_dataset: bool = False
    """Whether each rank has evaluated fewer samples than its dataset has."""
    reduced: str = "nothing"
    """What is reduced, for a headline; ``loss not`` where that is one of several metrics."""

    @cached_property
    def exchanges(self) -> list[Collective]:
        """The collectives of one rank since it began that carry values, weights and gradients apart."""
        rank, recording = next(iter(self.recordings.items()))
        begin, end = self.windows[rank]
        return [
            call
            for call in recording.collectives
            if begin <= call.time < end and not (call.weight_of or call.gradient_of)
            if not call.operation.endswith(NO_VALUES)
        ]

    @cached_property
    def results(self) -> EvaluationResults:
        """What it computes, and where that goes."""
        return EvaluationResults.of(self.recordings, self.windows, self.exchanges, self.loop, self.loader)

    def is_used(self, result: bool | None) -> bool:
        """Whether a value is one of its results, a rank's own; where not known, nothing else may speak against it."""
        return result is True or (result is None and not self.exchanges and not self.by_hand)


@dataclass(frozen=True)
class Use:
    """What a rank does by the number that it has."""

    what: str
    what_several: str
    at: Where | None
    value: str = ""
    name: str = ""
    """Of the number, in the program."""
    confidence: Confidence = Confidence.CERTAIN
    """Likely, where the number cannot be followed from the evaluation to its use."""


_Look: TypeAlias = Callable[[Evaluation, Recording, float, float], Use | None]


def _evaluation(shared: SharedPass) -> Evaluation:
    windows = {rank: shared.window(rank) for rank in shared.recordings}
    ended = {rank: pass_.end for rank, pass_ in shared.passes.items() if pass_.end is not None}
    first = next(iter(shared.passes.values()))
    drawn = max(map(len, (shared.indices or {}).values()), default=0)
    return Evaluation(
        shared.recordings,
        windows,
        _part(shared),
        shared.about,
        ended,
        loop=first.at,
        loader=first.loader,
        of_one_dataset=0 < drawn < (shared.loader.samples or 0) and first.ended == "exhausted",
    )


def _evaluations_by_hand(recordings: Mapping[int, Recording]) -> Iterator[Evaluation]:
    """Forwards in eval mode between two training steps, of other inputs on each rank, that no DataLoader gave."""
    forwards = {rank: _forwards_by_hand(recording) for rank, recording in recordings.items()}
    common = set.intersection(*(set(by_number) for by_number in forwards.values()))
    for number in sorted(common):
        inputs = [{forward.input for forward in by_number[number]} for by_number in forwards.values()]
        if all(None not in it for it in inputs) and not any(a & b for a, b in combinations(inputs, 2)):
            windows = {
                rank: (forwards[rank][number][0].time, _next_step(recording, number))
                for rank, recording in recordings.items()
            }
            line = next(iter(forwards.values()))[number][0].at
            about = Kind.LINE.of(f"{line.file}:{line.line}") if line else ()
            yield Evaluation(recordings, windows, "its own part of the samples", about, by_hand=True)


def _forwards_by_hand(recording: Recording) -> dict[int, list[Forward]]:
    """Those in eval mode outside passes over loaders, by the training steps before them."""
    forwards: defaultdict[int, list[Forward]] = defaultdict(list)
    updates = [step.optimizer_steps[-1].time for step in recording.steps if step.optimizer_steps]
    for forward in recording.evaluation_forwards:
        in_pass = any(pass_.covers(forward.time) for pass_ in recording.passes)
        if not forward.training and not in_pass:
            forwards[bisect(updates, forward.time)].append(forward)
    forwards.pop(0, None)
    return forwards


def _next_step(recording: Recording, number: int) -> float:
    """When training went on after so many steps."""
    steps = recording.all_steps[number : number + 1]
    return min((forward.time for step in steps for forward in step.forwards if forward.grad), default=inf)


def _is_divided(shared: SharedPass) -> bool:
    """Whether each rank evaluates samples that another one does not."""
    if shared.indices is None:
        contents = [set(pass_.content) for pass_ in shared.passes.values()]
        return all(contents) and not set.intersection(*contents)
    shards = [set(shard) for shard in shared.indices.values()]
    if shared.one_dataset is False and not shared.divided:
        return True
    return len(shards) > 1 and all(shard != shards[0] for shard in shards[1:])


def _part(shared: SharedPass) -> str:
    samples = [len(shard) for shard in (shared.indices or {}).values()]
    if not samples:
        return "its own part of the samples"
    return f"{max(samples)} of {len({i for shard in (shared.indices or {}).values() for i in shard})} samples"


def _is_left_in_files(evaluation: Evaluation) -> bool:
    """Whether each rank left something in a file of its own since it began."""
    files: dict[int, set[str]] = {}
    for rank, recording in evaluation.recordings.items():
        begin, end = evaluation.windows[rank]
        files[rank] = {save.path for save in recording.saves if begin <= save.begin < end and save.path}
        if evaluation.by_hand:
            written = (it for it in recording.files if it.action == "write" and begin <= it.time < end)
            files[rank] |= {it.path for it in written}
    counts = Counter(path for written in files.values() for path in written)
    return all(any(counts[path] == 1 for path in written) for written in files.values())


def _gravest(evaluations: Iterable[Evaluation]) -> list[tuple[Evaluation, Mapping[int, Use]]]:
    """Of each loader the gravest use of a rank's own number, and the first evaluation that shows it.

    A loader may be made anew on another line, and its number used on the same one: that is the same use.
    """
    gravest: dict[tuple[Subject, ...], tuple[int, Evaluation, Mapping[int, Use]]] = {}
    for evaluation in evaluations:
        for gravity, look in enumerate(() if _is_left_in_files(evaluation) else _LOOKS):
            uses = _uses(evaluation, look)
            if uses and (evaluation.about not in gravest or gravity < gravest[evaluation.about][0]):
                reduced = next((f"{use.name} not" for use in uses.values() if use.name), "nothing")
                told = replace(evaluation, reduced=reduced if evaluation.exchanges else "nothing")
                gravest[evaluation.about] = gravity, told, uses
    by_line: dict[object, tuple[Evaluation, Mapping[int, Use]]] = {}
    for _, evaluation, made in gravest.values():
        by_line.setdefault(next(iter(made.values())).at or evaluation.about, (evaluation, made))
    return [*by_line.values()]


def _uses(evaluation: Evaluation, look: _Look) -> dict[int, Use]:
    """What ranks do by their own number; that every rank prints its own is no use of it, unless it is a part of what
    the whole set is divided by."""
    prints = look in (_printed, _printed_as_whole)
    windows = dict(evaluation.windows)
    if prints:
        windows |= {rank: (begin, windows[rank][1]) for rank, begin in evaluation.ended.items()}
    uses = {
        rank: use
        for rank, recording in evaluation.recordings.items()
        if (use := look(evaluation, recording, *windows[rank]))
    }
    return {} if look is _printed and len(uses) == len(evaluation.recordings) else uses


def _scheduled(evaluation: Evaluation, recording: Recording, begin: float, end: float) -> Use | None:
    for call in recording.events(SchedulerStep):
        if begin <= call.time < end and call.metric is not None:
            result, name = evaluation.results.given_at(call.at)
            if evaluation.is_used(result):
                does, do = f"steps {call.name} by its own metric", f"step {call.name} by their own metrics"
                return Use(does, do, call.at, f"metric {call.metric:.6g}", name, _confidence(result))
    return None


def _confidence(result: bool | None) -> Confidence:
    return Confidence.CERTAIN if result else Confidence.LIKELY


def _chosen(evaluation: Evaluation, recording: Recording, begin: float, end: float) -> Use | None:
    """A checkpoint that is written where the rank's own result is better, or high enough."""
    saves = (save for save in recording.saves if begin <= save.begin < end and save.path)
    for save in saves:
        if decision := evaluation.results.decision(save.at):
            value = f"saves {quote(PurePath(save.path).name)}"
            return Use("chooses the best checkpoint", "choose the best checkpoint", decision, value)
    return None


def _has_number(text: str) -> bool:
    """Whether a printed line has what looks like a result, outside of paths."""
    return METRIC.search(_PATH.sub("", text)) is not None


def _printed(evaluation: Evaluation, recording: Recording, begin: float, end: float) -> Use | None:
    """A result that is printed; where no value can be followed, a number."""
    found: dict[bool | None, Use] = {}
    for line in recording.events(Printed):
        if begin <= line.time < end and _has_number(line.text):
            result, name = evaluation.results.given_at(line.at)
            text = quote(shorten(line.text))
            use = Use("prints the result", "print results", line.at, text, name, _confidence(result))
            found.setdefault(result, use)
    result = next((it for it in (True, None) if it in found and evaluation.is_used(it)), False)
    return found.get(result) if result is not False else None


def _printed_as_whole(evaluation: Evaluation, recording: Recording, begin: float, end: float) -> Use | None:
    """A sum over the rank's part, which is printed over the length of the whole dataset."""
    printed = (it for it in recording.events(Printed) if begin <= it.time < end)
    for line in printed if evaluation.of_one_dataset else ():
        if _has_number(line.text) and evaluation.results.divides_by_dataset(line.at):
            sums = "{} over the length of the whole set"
            one_rank, several = sums.format("prints its own sum"), sums.format("print their own sums")
            return Use(one_rank, several, line.at, quote(shorten(line.text)))
    return None


_LOOKS: tuple[_Look, ...] = (_scheduled, _chosen, _printed, _printed_as_whole)
"""The gravest first."""

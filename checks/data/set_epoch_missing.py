import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ddpdoctor.check import REINSTALL_TORCH, Check, Finding, Judgement, Passed, Where
from ddpdoctor.frameworks import by_framework
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.program.program import Program
from ddpdoctor.recorder.events.data import Loader, Sampler
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import by_state, listing, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_key, grouped, of_loader, on_each_rank
from ddpdoctor.trace.data import Pass

ENOUGH = 8
"""Samples from which two shuffles are not equal by chance; where the epoch is equal too, two are enough."""
ENOUGH_BATCHES = 2
"""Different batches in a row that are not trained on again by chance."""
_FOREVER = """\
def forever(loader):            # in place of itertools.cycle(loader)
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1"""


class SetEpochMissing(Check):
    """A shuffling sampler yields the same order in every epoch.

    What it finds:
        Training passes that all draw the same indices in the same order from a sampler that shuffles, because
        set_epoch was not called between them, was called for another sampler, or was given the same number; and a
        set_epoch that comes one pass late, so that the first two passes are equal; and batches of one pass that
        itertools.cycle keeps and repeats. In the live group, whether
        set_epoch works. Evaluation, a single pass, one batch taken as an example and loops that do not shuffle
        are left alone.

    Why it matters:
        DistributedSampler shuffles with seed + epoch, so that all ranks agree without communication. Without set_epoch
        the epoch stays 0: every epoch has the same batches in the same order, and every rank sees the same part
        of the data again and again. Training runs, and generalises worse.

    Example:
        for epoch in range(10):
            for batch in loader:    # DistributedSampler(shuffle=True), no set_epoch
                step(batch)

    Fix:
        Give the sampler the epoch before each pass:
            for epoch in range(10):
                sampler.set_epoch(epoch)
                for batch in loader:
                    step(batch)
    """

    code = "DD103"
    title = "samplers shuffle differently in each epoch"
    fix_with = by_framework(
        fabric="loader.sampler.set_epoch(epoch)    # before each loop over the loader",
        accelerate="loader.set_epoch(epoch)    # the loader that prepare returned, before each loop over it",
        ignite="@trainer.on(Events.EPOCH_STARTED)\ndef set_epoch(engine):\n    "
        "loader.sampler.set_epoch(engine.state.epoch)",
        ray="loader.sampler.set_epoch(epoch)    # the loader that prepare_data_loader returned",
    )
    measurements = ("sampler",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("sampler")
        stuck = [rank for rank, value in values.items() if value["epoch_1"] == value["epoch_0"]]
        if stuck:
            return self._sampler_broken(stuck, "the same order after set_epoch(1) as in epoch 0")
        unstable = [rank for rank, value in values.items() if value["again"] != value["epoch_0"]]
        if unstable:
            return self._sampler_broken(unstable, "a different order in a second pass of the same epoch")
        return Passed("DistributedSampler shuffles anew after set_epoch, and repeats its order without it")

    def examine_run(self, trace: Trace) -> Judgement:
        loops = [it for it in on_each_rank(trace.training(), _loops) if len(it[1].passes) > 1]
        shuffled = [(rank, loop) for rank, loop in loops if loop.shuffles]
        kept = grouped(on_each_rank(trace.training(), _kept), lambda pair: pair[1].at)
        repeating = grouped((pair for pair in shuffled if pair[1].repeats), lambda pair: pair[1].at)
        late = grouped((pair for pair in shuffled if pair[1].is_one_late), lambda pair: pair[1].at)
        findings = [*map(self._kept, kept), *map(self._repeats, repeating), *map(self._begins_late, late)]
        if findings:
            return findings
        self.require(loops, "no DataLoader has a second training pass")
        self.require(shuffled, "the samplers that train do not shuffle")
        first = shuffled[0][1]
        return Passed(
            f"each of {len(first.passes)} training passes over {first.loader.dataset} has a different order"
        )

    def _repeats(self, loops: Sequence[tuple[int, "Loop"]]) -> Finding:
        """Of the DataLoaders that one line of the script iterates."""
        loop = loops[0][1]
        loaders = len({_key(loop) for _, loop in loops})
        over = f" over each of {loaders} DataLoaders" if loaders > 1 else ""
        count = "both" if len(loop.passes) == 2 else f"all {len(loop.passes)}"
        sampler = loop.samplers[0].name if loop.samplers[0] else "the sampler"
        unchanged = "" if loop.epochs[0] is None else f": set_epoch never changed the epoch of {sampler}"
        return self.fail(
            f"{count} training passes{over} use the same shuffle order on "
            f"{ranks_phrase(rank for rank, _ in loops)}{unchanged}",
            **_fields(loops, lambda loop: f"each pass begins with samples {loop.begins_with}"),
        )

    def _kept(self, loops: Sequence[tuple[int, "Loop"]]) -> Finding:
        """Of the DataLoaders whose batches a line keeps."""
        loop, ranks = loops[0][1], ranks_phrase(rank for rank, _ in loops)
        return self.fail(
            f"{ranks} repeat the batches of the first pass over {loop.loader.dataset}, in the same order",
            why="The loop keeps the batches of the first pass, as itertools.cycle does. The "
            "sampler never draws a new order, so every rank sees the same part of the data in "
            "the same batches, and set_epoch has no effect.",
            fix=_FOREVER,
            **_fields(loops, lambda loop: f"the pass begins with samples {loop.begins_with}"),
        )

    def _begins_late(self, loops: Sequence[tuple[int, "Loop"]]) -> Finding:
        return self.warn(
            f"the first two of {len(loops[0][1].passes)} training passes have the same order on "
            f"{ranks_phrase(rank for rank, _ in loops)}: set_epoch comes one pass late",
            why="The order is drawn when the pass begins. A set_epoch at the end of the loop, or after the "
            "iterator was made, counts for the next pass only, so the first epoch is trained on twice.",
            **_fields(
                loops, lambda loop: f"epochs of the sampler, pass by pass: {', '.join(map(str, loop.epochs))}"
            ),
        )

    def _sampler_broken(self, ranks: list[int], order: str) -> Finding:
        return self.fail(
            f"DistributedSampler gives {ranks_phrase(ranks)} {order}",
            why="The order is drawn from seed + epoch alone. If it depends on anything else, shards overlap or all "
            "epochs are alike.",
            fix=REINSTALL_TORCH,
            ranks=tuple(ranks),
        )


@dataclass(frozen=True)
class Loop:
    """The training passes of one rank in one loop over one dataset."""

    loader: Loader
    passes: list[Pass]

    @property
    def at(self) -> Where | None:
        """The line of the loop."""
        return self.passes[:2][-1].at

    @property
    def samplers(self) -> list[Sampler | None]:
        """The sampler as it was in each pass."""
        return [pass_.sampler for pass_ in self.passes]

    @property
    def epochs(self) -> list[int | None]:
        """The epoch of the sampler in each pass."""
        return [sampler.epoch if sampler else None for sampler in self.samplers]

    @property
    def indices(self) -> Sequence[int]:
        """The samples of the first pass, in order."""
        return self.passes[0].indices or ()

    @property
    def begins_with(self) -> str:
        """The first samples."""
        return listing([str(index) for index in self.indices], 6)

    @property
    def shuffles(self) -> bool:
        """Whether the order is a random one; a sampler that does not say is taken by the order itself."""
        sampler = self.samplers[0]
        if sampler is None or sampler.shuffle is not None:
            return sampler is not None and bool(sampler.shuffle)
        return sampler.epoch is not None and list(self.indices) != sorted(self.indices)

    @property
    def repeats(self) -> bool:
        """Whether all passes have the same order."""
        one_epoch = len(set(self.epochs)) == 1 and self.epochs[0] is not None
        enough = len(set(self.indices)) >= (2 if one_epoch else ENOUGH)
        return enough and all(_same(self.passes[0], pass_) for pass_ in self.passes[1:])

    @property
    def is_one_late(self) -> bool:
        """Whether the first two passes are equal and no other two: set_epoch came after the iterator was made."""
        first, *others = (_same(*pair) for pair in pairwise(self.passes))
        epoch, second = self.epochs[:2]
        return first and bool(others) and not any(others) and epoch is not None and epoch == second


def _fields(loops: Sequence[tuple[int, Loop]], text: Callable[[Loop], str]) -> dict[str, Any]:
    """The fields of a finding about loops over DataLoaders in one line."""
    by_loader = by_key(loops, _key)
    return {
        "ranks": tuple(dict.fromkeys(rank for rank, _ in loops)),
        "where": loops[0][1].at,
        "evidence": tuple(entry for of_ranks in by_loader for entry in by_state(of_ranks, text)),
        "about": tuple(dict.fromkeys(subject for _, loop in loops for subject in of_loader(loop.loader))),
    }


def _key(loop: Loop) -> object:
    """What a DataLoader is on every rank."""
    return loop.loader.at or loop.loader.index


def _loops(recording: Recording) -> list[Loop]:
    """The training passes by the line of the loop and of the loader, which may be made anew for each epoch.

    A model that is wrapped between two passes begins a training of its own, which may repeat the epochs. Passes before
    a wrapped model trains at all are probes, a range test for instance, which may well see equal data.
    """
    begin = _first_training(recording)
    loops: dict[object, Loop] = {}
    for pass_ in recording.training_passes:
        loader = recording.loader(pass_.loader)
        is_probe = pass_.end is not None and pass_.end <= begin
        if loader is not None and pass_.indices is not None and _is_loop(pass_) and not is_probe:
            made = (loader.at, loader.content) if loader.at and loader.content else loader.index
            training = sum(wrapper.time <= pass_.begin for wrapper in recording.wrappers)
            drawn = replace(pass_, sampler=pass_.sampler or loader.sampler)
            key: object = pass_.at, made, training
            again = loops.get(("iter", made, training))
            goes_on = again is None or _goes_on_after(again.passes[-1], pass_)
            if goes_on and _makes_iterator(pass_.at, recording):
                key = "iter", made, training
            loops.setdefault(key, Loop(loader, [])).passes.append(drawn)
    return list(loops.values())


def _makes_iterator(at: Where | None, recording: Recording) -> bool:
    """Whether a line calls ``iter``, so that a pass may begin there and end elsewhere."""
    return at is not None and "builtins.iter" in Program.holding(at, recording.script).called_at(at)


def _kept(recording: Recording) -> list[Loop]:
    """The passes whose batches train again in the same order, without another pass over any DataLoader."""
    forwards = [forward for forward in recording.forwards if forward.grad and forward.input]
    loops = []
    for pass_ in recording.training_passes:
        loader = recording.loader(pass_.loader)
        if loader is None or pass_.end is None or not _goes_to_its_end(recording, pass_):
            continue
        inside = [forward for forward in forwards if pass_.covers(forward.time)]
        until = min((other.begin for other in recording.passes if other.begin >= pass_.end), default=math.inf)
        again = [forward for forward in forwards if pass_.end < forward.time < until][: len(inside)]
        loop = Loop(loader, [replace(pass_, sampler=pass_.sampler or loader.sampler)])
        enough = len({forward.input for forward in again}) >= ENOUGH_BATCHES and loop.shuffles
        if enough and (_are_equal(inside, again) or _are_cycled(recording.script, pass_, inside, again)):
            loops.append(loop)
    return loops


def _are_equal(inside: Sequence[Forward], again: Sequence[Forward]) -> bool:
    return all(forward.input == other.input for forward, other in zip(inside, again, strict=False))


def _are_cycled(script: str, pass_: Pass, inside: Sequence[Forward], again: Sequence[Forward]) -> bool:
    """Whether itertools.cycle went over the DataLoader, and what it gives again is changed before the forward."""
    cycles = any("itertools.cycle" in call.called for call in Program.of(script).calls_at(pass_.at))
    return cycles and {forward.at for forward in again} <= {forward.at for forward in inside}


def _goes_to_its_end(recording: Recording, pass_: Pass) -> bool:
    """Whether its end would come in the whole run, too, where fast-forward has ended it."""
    cut_short = recording.exit is not None and recording.exit.how == "shortened"
    reached = cut_short or recording.step_count > (pass_.batches or math.inf)
    return pass_.ended == "exhausted" or (pass_.ended == "shortened" and reached)


def _goes_on_after(pass_: Pass, other: Pass) -> bool:
    """Whether a pass was begun anew, by another line than the first, because the one before had come to its end."""
    return pass_.ended == "exhausted" and pass_.end is not None and pass_.end <= other.begin


def _first_training(recording: Recording) -> float:
    """When a wrapped model had its first forward of training; 0 where none had."""
    steps = (*recording.steps, *filter(None, [recording.trailing]))
    return min((forward.time for step in steps for forward in step.forwards if forward.grad), default=0.0)


def _is_loop(pass_: Pass) -> bool:
    """Whether it is more than one batch: the order within a batch does not matter, nor does an example."""
    return pass_.drawn > 1 and (pass_.batches is None or pass_.batches > 1)


def _same(pass_: Pass, other: Pass) -> bool:
    return list(pass_.indices or ()) == list(other.indices or ())

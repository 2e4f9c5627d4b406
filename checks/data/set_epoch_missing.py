from collections.abc import Mapping, Sequence
from itertools import pairwise

from ddpdoctor.check import Check
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.model import Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.outliers import by_state
from ddpdoctor.recorder.events.data import Loader, Sampler
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.instances import by_key, of_loader
from ddpdoctor.trace.recording import Recording

ENOUGH = 8
"""Samples from which two shuffles are not equal by chance; where the epoch is equal too, two are enough."""


class SetEpochMissing(Check):
    """A shuffling sampler yields the same order in every epoch.

    What it finds:
        Training passes that all draw the same indices in the same order from a sampler that shuffles, because
        set_epoch was not called between them, was called for another sampler, or was given the same number; and a
        set_epoch that comes one pass late, so that the first two passes are equal. In the live group, whether
        set_epoch works. Evaluation, a single pass, one batch taken as an example and loops that do not shuffle
        are left alone.

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
    title = "samplers shuffle differently in each epoch"
    measurements = ("sampler",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("sampler")
        stuck = [rank for rank, value in values.items() if value["epoch_1"] == value["epoch_0"]]
        if stuck:
            return self._stuck(stuck)
        unstable = [rank for rank, value in values.items() if value["again"] != value["epoch_0"]]
        if unstable:
            return self._unstable(unstable)
        return Passed("DistributedSampler shuffles anew after set_epoch, and repeats its order without it")

    def examine_run(self, trace: Trace) -> Judgement:
        loops = [
            (rank, loop)
            for rank, recording in trace.training().items()
            for loop in _loops(recording)
            if len(loop) > 1
        ]
        if not loops:
            return Skipped("no DataLoader has a second training pass")
        shuffled = [(rank, loop) for rank, loop in loops if _shuffles(loop)]
        if not shuffled:
            return Skipped("the samplers that train do not shuffle")
        stuck = by_key((pair for pair in shuffled if _always(pair[1])), _place)
        late = by_key((pair for pair in shuffled if _late(pair[1])), _place)
        first = shuffled[0][1]
        return [*map(self._repeats, stuck), *map(self._begins_late, late)] or Passed(
            f"{len(first)} training passes over {first[0][0].dataset} have orders of their own"
        )

    def _repeats(self, stuck: Mapping[int, "Loop"]) -> Finding:
        loop = next(iter(stuck.values()))
        sampler = _sampler(loop[0])
        epoch = f", epoch {sampler.epoch} in each" if sampler and sampler.epoch is not None else ""
        name = sampler.name if sampler else "the sampler"
        return self.fail(
            f"{name} gives {ranks_phrase(stuck)} the same order in each of {len(loop)} training passes{epoch}",
            why="The order is drawn from seed + epoch, and the epoch did not change. Every pass has the same "
            "batches in the same order, and every rank sees the same part of the data again and again.",
            fix="sampler.set_epoch(epoch)    # at the beginning of each epoch, before the loop over the loader",
            ranks=tuple(stuck),
            where=loop[1][1].at,
            evidence=by_state(
                stuck, lambda loop: f"each pass begins with samples {_some(loop[0][1].indices or ())}"
            ),
            about=of_loader(loop[0][0]),
        )

    def _begins_late(self, stuck: Mapping[int, "Loop"]) -> Finding:
        loop = next(iter(stuck.values()))
        epochs = ", ".join(str(sampler.epoch) for drawn in loop if (sampler := _sampler(drawn)))
        return self.warn(
            f"the first two of {len(loop)} training passes have the same order on {ranks_phrase(stuck)}: "
            "set_epoch comes one pass late",
            why="The order is drawn when the pass begins. A set_epoch at the end of the loop, or after the "
            "iterator was made, counts for the next pass only, so the first epoch is trained on twice.",
            fix="sampler.set_epoch(epoch)    # at the beginning of each epoch, before the loop over the loader",
            ranks=tuple(stuck),
            where=loop[1][1].at,
            evidence=(Evidence(f"epochs of the sampler, pass by pass: {epochs}", tuple(stuck)),),
            about=of_loader(loop[0][0]),
        )

    def _stuck(self, ranks: list[int]) -> Finding:
        return self.fail(
            f"DistributedSampler gives {ranks_phrase(ranks)} the same order after set_epoch(1) as in epoch 0",
            why="The order is drawn from seed + epoch. Where set_epoch has no effect, every epoch has the "
            "same batches in the same order.",
            fix="see whether a package replaces torch.utils.data.DistributedSampler, and reinstall torch: "
            "pip install --force-reinstall torch",
            ranks=tuple(ranks),
        )

    def _unstable(self, ranks: list[int]) -> Finding:
        return self.fail(
            f"DistributedSampler gives {ranks_phrase(ranks)} another order in a second pass of the same epoch",
            why="All ranks draw one order from seed + epoch and take every n-th index of it. Where the order "
            "depends on something else, their shards overlap.",
            fix="see whether a package replaces torch.utils.data.DistributedSampler, and reinstall torch: "
            "pip install --force-reinstall torch",
            ranks=tuple(ranks),
        )


Loop = list[tuple[Loader, Pass]]
"""The training passes of one rank in one loop over one dataset."""


def _place(loop: Loop) -> tuple[object, ...]:
    """What a loop is on every rank: its line, and the loader's."""
    loader, drawn = loop[0]
    return drawn.at, loader.at or loader.index


def _loops(recording: Recording) -> list[Loop]:
    """The training passes by the line of the loop and of the loader, which may be made anew for each epoch.

    A model that is wrapped between two passes begins a training of its own, which may repeat the epochs.
    """
    loaders = {loader.index: loader for loader in recording.loaders}
    loops: dict[object, Loop] = {}
    for drawn in recording.passes:
        loader = loaders.get(drawn.loader)
        if loader is not None and drawn.training and drawn.indices is not None and _is_loop(drawn):
            anew = (loader.at, loader.content) if loader.at and loader.content else loader.index
            training = sum(wrapper.time <= drawn.begin for wrapper in recording.wrappers)
            loops.setdefault((drawn.at, anew, training), []).append((loader, drawn))
    return list(loops.values())


def _is_loop(drawn: Pass) -> bool:
    """Whether it is more than one batch: the order within a batch does not matter, nor does an example."""
    return drawn.drawn > 1 and (drawn.batches is None or drawn.batches > 1)


def _sampler(drawn: tuple[Loader, Pass]) -> Sampler | None:
    return drawn[1].sampler or drawn[0].sampler


def _shuffles(loop: Loop) -> bool:
    """Whether the order is a random one; a sampler that does not say is taken by the order itself."""
    sampler = _sampler(loop[0])
    if sampler is not None and sampler.shuffle is not None:
        return sampler.shuffle
    indices = list(loop[0][1].indices or ())
    return sampler is not None and sampler.epoch is not None and indices != sorted(indices)


def _same(drawn: tuple[Loader, Pass], other: tuple[Loader, Pass]) -> bool:
    return list(drawn[1].indices or ()) == list(other[1].indices or ())


def _always(loop: Loop) -> bool:
    epochs = {sampler.epoch if (sampler := _sampler(drawn)) else None for drawn in loop}
    one_epoch = len(epochs) == 1 and None not in epochs
    enough = len(set(loop[0][1].indices or ())) >= (2 if one_epoch else ENOUGH)
    return enough and all(_same(loop[0], drawn) for drawn in loop[1:])


def _late(loop: Loop) -> bool:
    """Whether the first two passes are equal and no other two: the sign of a set_epoch after the iterator was made."""
    equal = [_same(drawn, other) for drawn, other in pairwise(loop)]
    epochs = [sampler.epoch if (sampler := _sampler(drawn)) else None for drawn in loop[:2]]
    return (
        len(equal) > 1 and equal[0] and not any(equal[1:]) and None not in epochs and epochs[0] == epochs[1]
    )


def _some(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:6])) + (", ..." if len(indices) > 6 else "")

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.text import plural
from ddpdoctor.trace import Recording, Trace, of_loader
from ddpdoctor.trace.data import Split


class SplitLeak(Check):
    """One rank trains on samples that another rank holds out.

    What it finds:
        A dataset that each rank divides at random into a part to train on and a part to evaluate on, in another
        way than the other ranks, so that parts overlap across ranks. Ranks that train separate models, as in
        cross-validation with a fold for each rank, are left alone, as are parts that differ and do not overlap.

    Why it matters:
        All ranks train one model. It has been trained on what rank 0 holds out, by rank 1, so the evaluation measures
        memory: it looks too good, and early stopping comes too late.

    Example:
        A different seed on each rank, for the augmentation, before the split:
            torch.manual_seed(seed + rank)
            train, held_out = random_split(dataset, [0.8, 0.2])

    Fix:
        Give the split a generator with the same seed on every rank:
            train, held_out = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
    """

    code = "DD107"
    title = "no rank trains on held-out samples"

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.training_of_several()
        self.require(any(it.wrappers for it in recordings.values()), "the ranks do not train one model")
        splits = [row for row in _splits(recordings) if any(it.trained and it.held for it in row.values())]
        self.require(splits, "no dataset was split to train on a part of it")
        leaking = {next(iter(row.values())).split.at: row for row in reversed(splits) if _leaks(row)}
        held = max(len(part.held) for part in splits[0].values())
        for row in reversed(leaking.values()):
            leaks = _leaks(row)
            (trains, holds), count = max(leaks.items(), key=lambda item: item[1])
            leaked = {holder: shared for (_, holder), shared in sorted(leaks.items(), key=lambda it: it[1])}
            yield self.fail(
                f"rank {trains} trains on {count} of the {plural(len(row[holds].held), 'sample')} that rank "
                f"{holds} holds out",
                where=row[holds].split.at,
                evidence={
                    rank: f"holds out {len(part.held)} of {part.split.samples} samples; another rank trains "
                    f"on {leaked.get(rank, 0)} of them"
                    for rank, part in row.items()
                },
                # None where a dataset around the parts hides which loaders they went to.
                about=tuple(
                    subject
                    for loader in recordings[trains].loaders
                    if loader.index in row[trains].split.loaders
                    for subject in of_loader(loader)
                ),
            )
        yield Passed(f"no rank trains on any of the {plural(held, 'sample')} that are held out")


@dataclass(frozen=True)
class Divided:
    """What one rank made of one split."""

    split: Split
    trained: frozenset[int]
    held: frozenset[int]
    """Samples of other parts, and of none that is trained on: a part of the training data may be evaluated too."""


def _splits(recordings: Mapping[int, Recording]) -> Iterator[dict[int, Divided]]:
    """The same split on each rank that made it, in the order in which it was made."""
    for number in range(max(len(recording.splits) for recording in recordings.values())):
        row = {
            rank: _divided(recording.splits[number], recording)
            for rank, recording in recordings.items()
            if number < len(recording.splits)
        }
        if len(row) > 1 and len({part.split.samples for part in row.values()}) == 1:
            yield row


def _divided(split: Split, recording: Recording) -> Divided:
    train = {pass_.loader for pass_ in recording.training_passes}
    parts = [frozenset(part) for part in split.parts]
    loaders = (*split.loaders, *[None] * (len(parts) - len(split.loaders)))
    used = [part for part, loader in zip(parts, loaders, strict=False) if loader in train]
    if not used and all(loader is None for loader in loaders) and len(parts) > 1:
        used = [max(parts, key=len)]  # a dataset around them hides it: who splits trains on the larger part
    trained = frozenset[int]().union(*used)
    return Divided(split, trained, frozenset[int]().union(*parts) - trained)


def _leaks(row: Mapping[int, Divided]) -> dict[tuple[int, int], int]:
    """How many samples that the second rank holds out the first one trains on."""
    both = {pair: row[pair[0]].trained & row[pair[1]].held for pair in permutations(row, 2)}
    return {pair: len(samples) for pair, samples in both.items() if samples}

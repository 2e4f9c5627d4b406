"""One loop over the same data on every rank that averages with the others: passes side by side, datasets compared.

Loaders are matched by the line that made them and their kind, not by a running number: a rank that alone evaluates
before training would shift the numbers of all that follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from ddpdoctor.model import Subject, Where
from ddpdoctor.outliers import by_state
from ddpdoctor.recorder.events.data import Loader, Sampler
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.instances import of_loader
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.together import train_one_model

_Key: TypeAlias = tuple[object, ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Round:
    """One pass that all ranks of a group make in the same loop."""

    passes: Mapping[int, Pass]
    loaders: Mapping[int, Loader]
    recordings: Mapping[int, Recording]
    number: int
    """Of its kind over this loader, from 0."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the group."""
        return tuple(self.passes)

    @property
    def loader(self) -> Loader:
        """The lowest rank's."""
        return next(iter(self.loaders.values()))

    @property
    def at(self) -> Where | None:
        """Where the sampler or the loader was made: the line to change where ranks draw wrong samples."""
        return self.loader.at or next(iter(self.passes.values())).at

    @property
    def about(self) -> tuple[Subject, ...]:
        """The loader, as findings name it."""
        return of_loader(self.loader)

    def fields(self, text: Mapping[int, str], where: Where | None = None) -> dict[str, Any]:
        """The fields of a finding about this loader, with what is so on each rank."""
        return {
            "ranks": self.ranks,
            "where": where or self.at,
            "evidence": by_state(text),
            "about": self.about,
        }

    @property
    def sampler_at(self) -> Where | None:
        """Where the sampler was made; the loader's line where that was not seen."""
        return next((s.at for s in self.samplers.values() if s.at), None) or self.at

    @cached_property
    def samplers(self) -> Mapping[int, Sampler]:
        """The sampler of each rank that has one, as it was when the pass began."""
        found = {rank: self.passes[rank].sampler or self.loaders[rank].sampler for rank in self.passes}
        return {rank: sampler for rank, sampler in found.items() if sampler is not None}

    @cached_property
    def indices(self) -> Mapping[int, Sequence[int]] | None:
        """What each rank draws; None where a rank's samples have no numbers."""
        found = {rank: one.indices for rank, one in self.passes.items() if one.indices is not None}
        return found if len(found) == len(self.passes) else None

    @property
    def divided(self) -> bool:
        """Whether samplers divide one dataset among ranks."""
        return len(self.samplers) == len(self.passes) and all(
            sampler.distributed and (sampler.replicas or 2) > 1 for sampler in self.samplers.values()
        )

    @cached_property
    def one_dataset(self) -> bool | None:
        """Whether every rank's dataset holds the same in the same order; None where that was not seen."""
        if len({loader.content for loader in self.loaders.values()}) > 1:
            return False if all(loader.content for loader in self.loaders.values()) else None
        return True if self.loader.content or self._has_same_samples else None

    @property
    def _has_same_samples(self) -> bool:
        """Whether samples that several ranks have drawn by the same number are equal, as far as they were seen."""
        seen: dict[int, set[str | None]] = {}
        drawn: Counter[int] = Counter()
        for rank, own in self.passes.items():
            for index, sample in zip((self.indices or {}).get(rank, ()), own.samples, strict=False):
                seen.setdefault(index, set()).add(sample)
                drawn[index] += 1
        shared = [seen[index] for index, count in drawn.items() if count > 1]
        alike = {next(iter(samples)) for samples in shared if len(samples) == 1}
        return len(alike) > 1 and all(len(samples) == 1 for samples in shared)

    @property
    def same_batches(self) -> bool:
        """Whether the first batches are equal on every rank, and are more than one batch again and again."""
        first, *others = (one.content for one in self.passes.values())
        seen = min(len(content) for content in (first, *others))
        return len(set(first[:seen])) > 1 and all(content[:seen] == first[:seen] for content in others)

    def forwards(self, rank: int) -> list[Forward]:
        """The forwards that learn, inside this pass of a rank, as far as they were written down."""
        one = self.passes[rank]
        end = one.end if one.end is not None else float("inf")
        steps = self.recordings[rank].steps
        return [f for step in steps for f in step.forwards if f.grad and one.begin <= f.time <= end]

    @property
    def parted(self) -> bool:
        """Whether ranks take their own parts of common batches: every n-th batch, or a slice of each."""
        return all(self._takes_part(rank) for rank in self.ranks)

    def _takes_part(self, rank: int) -> bool:
        drawn, forwards = self.passes[rank].drawn, self.forwards(rank)
        size, group = self.loaders[rank].batch_size, len(self.ranks)
        sizes = Counter(one.batch for one in forwards if one.batch is not None)
        sliced = bool(size and sizes) and max(sizes) * group <= (size or 0) + group - 1
        return bool(forwards) and (sliced or (drawn >= group and len(forwards) * group <= drawn + group - 1))


def training_rounds(recordings: Mapping[int, Recording]) -> Iterator[Round]:
    """The passes in which optimizers step, of each group of ranks that average their gradients."""
    return _rounds(recordings, _trains)


def _trains(one: Pass) -> bool:
    """Whether optimizers step inside it, or would if this rank had a batch at all."""
    return one.training or (one.batches == 0 and not one.evaluation)


def by_loader(rounds: Iterable[Round], look: Callable[[Round], _T | None]) -> list[tuple[Round, _T]]:
    """What is so of each loader, and the first pass over it that shows it: later passes are more of the same."""
    found: dict[tuple[Subject, ...], tuple[Round, _T]] = {}
    for one in rounds:
        if one.about not in found and (sight := look(one)):
            found[one.about] = one, sight
    return list(found.values())


def evaluation_rounds(recordings: Mapping[int, Recording]) -> Iterator[Round]:
    """The passes that evaluate, of each group of ranks that train together."""
    return _rounds(recordings, lambda one: one.evaluation and not one.training)


def _rounds(recordings: Mapping[int, Recording], wanted: Callable[[Pass], bool]) -> Iterator[Round]:
    for group in groups(recordings):
        keyed = {rank: _keyed(recordings[rank], wanted) for rank in group}
        common = set.intersection(*(set(own) for own in keyed.values()))
        for key in (key for key in keyed[group[0]] if key in common):
            found = {rank: keyed[rank][key] for rank in group}
            yield Round(
                {rank: one for rank, (_, one) in found.items()},
                {rank: loader for rank, (loader, _) in found.items()},
                {rank: recordings[rank] for rank in group},
                int(str(key[-1])),
            )


def _keyed(recording: Recording, wanted: Callable[[Pass], bool]) -> dict[_Key, tuple[Loader, Pass]]:
    """The passes in order, by what they have in common with those of other ranks."""
    loaders = {loader.index: loader for loader in recording.loaders}
    seen: Counter[_Key] = Counter()
    found: dict[_Key, tuple[Loader, Pass]] = {}
    for one in sorted(
        (p for p in recording.passes if p.loader in loaders and wanted(p)), key=lambda p: p.begin
    ):
        loader = loaders[one.loader]
        kind: _Key = (loader.at, loader.dataset, loader.streams, one.at)
        key: _Key = (kind, seen[kind])
        found[key] = loader, one
        seen[kind] += 1
    return found


def groups(recordings: Mapping[int, Recording]) -> list[tuple[int, ...]]:
    """The sets of ranks that average gradients with each other, and so need data of their own.

    All ranks, unless a wrapper was given a process group of fewer: ranks of one tensor-parallel group share data.
    None where each rank trains a model of its own.
    """
    if not train_one_model(recordings):
        return []
    own = {rank: _group_of(rank, one, recordings) for rank, one in recordings.items()}
    return sorted({group for group in own.values() if len(group) > 1})


def _group_of(rank: int, recording: Recording, recordings: Mapping[int, Recording]) -> tuple[int, ...]:
    members = next((wrapper.ranks for wrapper in recording.wrappers if wrapper.ranks), None)
    return tuple(r for r in sorted(recordings) if members is None or r in members or r == rank)

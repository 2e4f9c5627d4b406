"""One loop over the same data on every rank that averages with the others: passes side by side, datasets compared.

Loaders are matched by the line that made them, their kind and their data, not by a running number: a rank that alone
evaluates before training would shift the numbers of all that follow.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from ddpdoctor.model import Evidence, Subject, Where
from ddpdoctor.recorder.events.data import Loader, Sampler, Subset
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import by_state
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.instances import of_loader
from ddpdoctor.trace.joint_training import averaging_group, dividing_groups, train_one_model, whole_group
from ddpdoctor.trace.record import read_numbers
from ddpdoctor.trace.recording import Recording

_Key: TypeAlias = tuple[object, ...]
_Drawn: TypeAlias = list[tuple[Loader, Pass]]
_Row: TypeAlias = Mapping[int, tuple[Loader, Pass]]
_T = TypeVar("_T")


@dataclass(frozen=True)
class SharedPass:
    """One pass that all ranks of a group make in the same loop."""

    passes: Mapping[int, Pass]
    loaders: Mapping[int, Loader]
    recordings: Mapping[int, Recording]
    number: int
    """Of its kind over this loader, from 0."""
    members: tuple[int, ...]
    """The ranks of the group in order, also those that were not recorded: of other hosts, or imaginary."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the group that were recorded."""
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

    def fields(
        self,
        states: Mapping[int, _T],
        text: Callable[[_T], str] = str,
        where: Where | None = None,
        cause: Where | None = None,
    ) -> dict[str, Any]:
        """The fields of a finding about this loader: ranks, where, evidence of each rank's state, and about. With a
        ``cause``, the line to change, that is where, which is shown as evidence then."""
        made = (Evidence(f"DataLoader at {self.at}", where=self.at),) if cause and self.at else ()
        evidence, at = (*by_state(states, text), *made), cause or where or self.at
        return {"ranks": self.ranks, "where": at, "evidence": evidence, "about": self.about}

    @property
    def sampler_at(self) -> Where | None:
        """Where the sampler was made; the loader's line where that was not seen."""
        return next((s.at for s in self.samplers.values() if s.at), None) or self.at

    @cached_property
    def samplers(self) -> Mapping[int, Sampler]:
        """The sampler of each rank that has one, as it was when the pass began."""
        samplers = {rank: pass_.sampler or self.loaders[rank].sampler for rank, pass_ in self.passes.items()}
        return {rank: sampler for rank, sampler in samplers.items() if sampler is not None}

    @cached_property
    def indices(self) -> Mapping[int, Sequence[int]] | None:
        """What each rank draws; None where a rank's samples have no numbers."""
        indices = {rank: pass_.indices for rank, pass_ in self.passes.items() if pass_.indices is not None}
        return indices if len(indices) == len(self.passes) else None

    def part(self, rank: int) -> frozenset[int]:
        """What the rank's dataset is of another one, as a Subset; empty where it is none, or several."""
        parts, recording = self.loaders[rank].parts, self.recordings[rank]
        subset = next((it for it in recording.events(Subset) if (it.part,) == parts), None)
        return frozenset((subset and read_numbers(recording.record.file, subset.indices)) or ())

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
        samples: defaultdict[int, list[str | None]] = defaultdict(list)
        for rank, pass_ in self.passes.items():
            for index, sample in zip((self.indices or {}).get(rank, ()), pass_.samples, strict=False):
                samples[index].append(sample)
        shared = [set(digests) for digests in samples.values() if len(digests) > 1]
        return all(len(digests) == 1 for digests in shared) and len(set().union(*shared)) > 1

    @property
    def same_batches(self) -> bool:
        """Whether the first batches are equal on every rank, and are more than one batch again and again."""
        first, *others = (pass_.content for pass_ in self.passes.values())
        digested = min(len(content) for content in (first, *others))
        equal = all(content[:digested] == first[:digested] for content in others)
        return equal and len(set(first[:digested])) > 1

    def forwards(self, rank: int) -> list[Forward]:
        """The forwards that learn, inside this pass of a rank, as far as they were written down."""
        recording, pass_ = self.recordings[rank], self.passes[rank]
        return [it for it in recording.forwards if recording.learns(it) and pass_.covers(it.time)]

    def window(self, rank: int) -> tuple[float, float]:
        """From its beginning to the next training step, or to the next pass that trains or is of the same loader."""
        recording, pass_ = self.recordings[rank], self.passes[rank]
        after = pass_.begin if pass_.end is None else pass_.end
        steps = [forward.time for step in recording.steps for forward in step.forwards if forward.grad]
        steps += [update.time for update in recording.updates]
        passes = (it.begin for it in recording.passes if it.training or it.loader == pass_.loader)
        return pass_.begin, min((time for time in (*steps, *passes) if time > after), default=math.inf)

    @property
    def takes_own_parts(self) -> bool:
        """Whether ranks take their own parts of common batches: every n-th batch, or a slice of each."""
        inputs = {tuple(forward.input for forward in self.forwards(rank)) for rank in self.ranks}
        same = len(inputs) == 1 and None not in next(iter(inputs))
        return not same and all(self._takes_part(rank) for rank in self.ranks)

    def _takes_part(self, rank: int) -> bool:
        drawn, forwards = self.passes[rank].drawn, self.forwards(rank)
        size, group = self.passes[rank].length or self.loaders[rank].batch_size, len(self.members)
        largest = max((forward.batch for forward in forwards if forward.batch is not None), default=None)
        sliced = bool(size) and largest is not None and largest * group <= (size or 0) + group - 1
        return bool(forwards) and (sliced or (drawn >= group and len(forwards) * group <= drawn + group - 1))


def training_rounds(recordings: Mapping[int, Recording]) -> Iterator[SharedPass]:
    """The passes in which optimizers step, of each group of ranks that average their gradients.

    Or would step, if this rank had a batch at all.
    """
    return _rounds(recordings, lambda it: it.training or (it.batches == 0 and not it.evaluation))


def rounds_in_order(recordings: Mapping[int, Recording]) -> Iterator[SharedPass]:
    """The training passes of one loop, by their number alone, however unlike the loaders of the ranks are."""
    for number, row in enumerate(zip(*(it.training_passes for it in recordings.values()), strict=False)):
        passes = dict(zip(recordings, row, strict=True))
        loaders = {rank: recordings[rank].loader(pass_.loader) for rank, pass_ in passes.items()}
        known = {rank: loader for rank, loader in loaders.items() if loader}
        if len(known) == len(passes) and len({(known[rank].at, passes[rank].at) for rank in known}) == 1:
            yield SharedPass(passes, known, recordings, number, tuple(recordings))


def begun_rounds(recordings: Mapping[int, Recording]) -> Iterator[SharedPass]:
    """The passes in which ranks began to train, of a run that did not come to an update."""
    return _rounds(recordings, lambda pass_: not pass_.evaluation)


def by_loader(
    rounds: Iterable[SharedPass], look: Callable[[SharedPass], _T | None]
) -> list[tuple[SharedPass, _T]]:
    """What is so of each loader, and the first pass over it that shows it: later passes are more of the same."""
    results: dict[tuple[Subject, ...], tuple[SharedPass, _T]] = {}
    for shared in rounds:
        if shared.about not in results and (result := look(shared)):
            results[shared.about] = shared, result
    return list(results.values())


def evaluation_rounds(recordings: Mapping[int, Recording]) -> Iterator[SharedPass]:
    """The passes that evaluate, of each group of ranks that train together."""
    return _rounds(recordings, lambda pass_: pass_.evaluation and not pass_.training)


def _rounds(recordings: Mapping[int, Recording], wanted: Callable[[Pass], bool]) -> Iterator[SharedPass]:
    for group in groups(recordings):
        kinds = {rank: _by_kind(recordings[rank], wanted) for rank in group}
        common = set.intersection(*(set(passes) for passes in kinds.values()))
        for kind in (kind for kind in kinds[group[0]] if kind in common):
            for number, row in _side_by_side({rank: kinds[rank][kind] for rank in group}):
                for members in _data_groups(row, recordings):
                    ranks = [rank for rank in members if rank in row]
                    yield SharedPass(
                        {rank: row[rank][1] for rank in ranks},
                        {rank: row[rank][0] for rank in ranks},
                        {rank: recordings[rank] for rank in ranks},
                        number,
                        members,
                    )


def _data_groups(row: _Row, recordings: Mapping[int, Recording]) -> list[tuple[int, ...]]:
    """The ranks among which the samplers of a pass divide, where the others share their batches as one group."""
    everybody = tuple(sorted({*whole_group(next(iter(row)), recordings), *row}))
    groups: set[tuple[int, ...]] = set()
    for rank, (loader, pass_) in row.items():
        sampler = pass_.sampler or loader.sampler
        place = (sampler.rank, sampler.replicas) if sampler and sampler.distributed else None
        made = (group for group in dividing_groups(recordings[rank]) if (group.rank, group.size) == place)
        groups.add(next((group.ranks for group in made if group.ranks), everybody))
    several = [group for group in groups if len(set(group) & set(row)) > 1 and set(group) <= set(everybody)]
    return [everybody] if everybody in groups else sorted(several)


def _by_kind(recording: Recording, wanted: Callable[[Pass], bool]) -> dict[_Key, _Drawn]:
    """The passes in order, by the line that made the loader, its kind, and the line of the loop."""
    kinds: dict[_Key, _Drawn] = {}
    for pass_ in sorted(filter(wanted, recording.passes), key=lambda pass_: pass_.begin):
        if loader := recording.loader(pass_.loader):
            kind = (loader.at, loader.dataset, loader.streams, pass_.at)
            kinds.setdefault(kind, []).append((loader, pass_))
    return kinds


def _side_by_side(drawn: Mapping[int, _Drawn]) -> Iterator[tuple[int, dict[int, tuple[Loader, Pass]]]]:
    """The passes of one kind that belong together, each with its number.

    Where one line makes a loader for each of several tasks, each rank may go over them in an order of its own: then
    loaders belong together that are over the same data. Where no two are, the order is all there is to go by, unless
    loaders take turns. Where each loader is gone over once and ranks do not have the same ones, a rank has decided for
    itself what it goes on with: then loaders belong together that are over the same data at the same place.
    """
    if max(len({loader.index for loader, _ in passes}) for passes in drawn.values()) > 1:
        keyed = {rank: _by_identity(passes) for rank, passes in drawn.items()}
        common = set.intersection(*(set(by_key) for by_key in keyed.values()))
        has_more = any(set(keys) > common for keys in keyed.values())
        if common and has_more and all(map(_is_each_new, drawn.values())):
            for number, row in enumerate(zip(*drawn.values(), strict=False)):
                if len({_identity(loader) for loader, _ in row}) == 1:
                    yield number, dict(zip(drawn, row, strict=True))
            return
        if common or any(_takes_turns(by_key) for by_key in drawn.values()):
            for key in (key for key in next(iter(keyed.values())) if key in common):
                yield int(str(key[-1])), {rank: by_key[key] for rank, by_key in keyed.items()}
            return
    for number, row in enumerate(zip(*drawn.values(), strict=False)):
        yield number, dict(zip(drawn, row, strict=True))


def _by_identity(drawn: _Drawn) -> dict[_Key, tuple[Loader, Pass]]:
    """Passes by what their loader is over, which of those it is by order of construction, and their number."""
    alike: dict[_Key, list[int]] = {}
    for loader in sorted({loader.index: loader for loader, _ in drawn}.values(), key=lambda it: it.made):
        alike.setdefault(_identity(loader), []).append(loader.index)
    count: Counter[int] = Counter()
    keyed: dict[_Key, tuple[Loader, Pass]] = {}
    for loader, pass_ in drawn:
        what = _identity(loader)
        key: _Key = (*what, alike[what].index(loader.index), count[loader.index])
        keyed[key] = loader, pass_
        count[loader.index] += 1
    return keyed


def _identity(loader: Loader) -> _Key:
    return loader.samples, loader.content, loader.batch_size, loader.sampler and loader.sampler.name


def _is_each_new(drawn: _Drawn) -> bool:
    """Whether each loader was gone over once, as those that are made for an epoch."""
    return len({loader.index for loader, _ in drawn}) == len(drawn)


def _takes_turns(drawn: _Drawn) -> bool:
    """Whether a loader was left for another and gone over again, or not left before."""
    order = [loader.index for loader, _ in drawn]
    changes = sum(index != following for index, following in pairwise(order))
    overlap = any(it.end is None or it.end > following.begin for (_, it), (_, following) in pairwise(drawn))
    return overlap or changes >= len(set(order))


def groups(recordings: Mapping[int, Recording]) -> list[tuple[int, ...]]:
    """The sets of ranks that average gradients with each other, and so need data of their own.

    All ranks, unless a wrapper was given a process group of fewer: ranks of one tensor-parallel group share data.
    None where each rank trains a model of its own.
    """
    if not train_one_model(recordings):
        return []
    everybody = tuple(sorted(recordings))
    of_ranks: set[tuple[int, ...]] = set()
    for rank, members in ((rank, averaging_group(recording)) for rank, recording in recordings.items()):
        of_ranks.add(everybody if members is None else tuple(sorted(recordings.keys() & {*members, rank})))
    return sorted(group for group in of_ranks if len(group) > 1)

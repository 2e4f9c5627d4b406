"""Whether a value is a result of an evaluation: followed from where the model is called to where the value is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Program
from ddpdoctor.program.known import LOADERS
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace.lines import program_of
from ddpdoctor.trace.recording import Recording


@dataclass(frozen=True)
class EvaluationResults:
    """What an evaluation computes: the lines are recorded, the way from them to a use is the program's text."""

    program: Program | None
    forwards: frozenset[Where]
    """The lines at which it called the model."""
    loop: Where | None
    """Its pass over a loader; None where there is none."""
    loader: Where | None
    """Where its DataLoader was constructed; None where others were constructed on the same line."""
    is_shared: bool
    """Whether training goes through the same lines."""
    exchanges: frozenset[Where]
    """The lines that issued collectives since it began."""

    @staticmethod
    def of(
        recordings: Mapping[int, Recording],
        windows: Mapping[int, tuple[float, float]],
        exchanges: Sequence[Collective],
        loop: Where | None = None,
        loader: int = -1,
    ) -> EvaluationResults:
        """Of evaluations that all ranks took part in, by the time of it and of each rank's use of its results."""
        first = next(iter(recordings.values()))
        forwards = _lines(
            it.at
            for rank, recording in recordings.items()
            for it in recording.evaluation_forwards
            if windows[rank][0] <= it.time < windows[rank][1]
        )
        learns = _lines(it.at for it in first.forwards if first.learns(it))
        trains = _lines(it.at for it in first.training_passes)
        at = next((it.at for it in first.loaders if it.index == loader), None)
        is_one_of_several = any(it.at == at for it in first.loaders if it.index != loader)
        start = loop or next(iter(forwards), None)
        return EvaluationResults(
            program_of(start, recordings) if start else None,
            forwards,
            loop,
            None if is_one_of_several else at,
            bool(forwards & learns) or bool(_lines([loop]) & trains),
            _lines(call.at for call in exchanges),
        )

    def given_at(self, at: Where | None) -> tuple[bool | None, str]:
        """Whether a line's calls are given a result of this rank alone, and its name; None where not known."""
        if at not in self._given:
            self._given[at] = self._among(self._pieces_given_at(at))
        return self._given[at]

    @cached_property
    def _given(self) -> dict[Where | None, tuple[bool | None, str]]:
        """What was found of lines, many of which print again and again."""
        return {}

    def _among(self, values: Iterable[Expression]) -> tuple[bool | None, str]:
        found = [(self._is_result(value), value) for value in values]
        result = next((value for is_result, value in found if is_result), None)
        if result is not None:
            return True, self._name(result)
        return (False if found and all(is_result is False for is_result, _ in found) else None), ""

    def _pieces_given_at(self, *lines: Where | None) -> Iterator[Expression]:
        calls = (call for at in lines for call in (self.program.calls_at(at) if self.program else ()))
        return (piece for call in calls for given in call.arguments for piece in given.pieces())

    def divides_by_dataset(self, at: Where | None) -> bool:
        """Whether a line is given a result of this rank alone over the length of the dataset."""
        return any(
            self._is_result(dividend) and any(map(_is_length_of_dataset, divisor.made_of()))
            for value in self._pieces_given_at(at)
            for part in value.made_of(_counts)
            for dividend, divisor in part.quotient()
        )

    def decision(self, at: Where | None) -> Where | None:
        """The condition that a line is reached by and that goes by a result of this rank alone."""
        conditions = self.program.conditions_leading_to(at) if self.program and at else []
        return next((it.at for it in conditions if self._is_result(it.test)), None)

    def _is_result(self, value: Expression) -> bool | None:
        parts = list(value.made_of(_counts))
        computed = [part for part in parts if part.is_call and self._is_in_evaluation(part)]
        if not computed:
            loaders = any(part.called & LOADERS for part in parts)
            return False if loaders or value.origins.known else None
        is_given = not self.exchanges.isdisjoint(_lines(part.where for part in parts))
        if is_given or self._name(value) in self._exchanged:
            return False
        made = {part.where.place for part in parts if part.called & LOADERS}
        if made and self.loader:
            return self.loader.place in made
        return None if self.is_shared else True

    def _is_in_evaluation(self, part: Expression) -> bool:
        if self.forwards:
            return not self.forwards.isdisjoint(_lines([part.where]))
        loop = self.loop
        return loop is not None and part.where.file == loop.file and part.is_in_loop_at(loop.line)

    @cached_property
    def _exchanged(self) -> frozenset[str]:
        """The sums that collectives were given."""
        given = self._pieces_given_at(*self.exchanges)
        return frozenset(part.added_to for value in given for part in value.made_of(_counts)) - {""}

    @staticmethod
    def _name(result: Expression) -> str:
        """The variable that the evaluation sums it up in."""
        return next((part.added_to for part in result.made_of(_counts) if part.added_to), result.text)


def _lines(places: Iterable[Where | None]) -> frozenset[Where]:
    return frozenset(Where(it.file, it.line) for it in places if it is not None)


def _is_length_of_dataset(part: Expression) -> bool:
    """Whether it is the length of what is given to a DataLoader, or of a DataLoader's ``dataset``."""
    it = part.argument(0, "") if "builtins.len" in part.called else None
    return it is not None and (it.is_attribute("dataset") or it.program.is_given_to(it, LOADERS, "dataset"))


def _counts(part: Expression) -> bool:
    """Whether a part is counted, and its value does not matter."""
    return "builtins.len" in part.called

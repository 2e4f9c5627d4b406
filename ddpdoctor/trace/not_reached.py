"""What a run says nothing of: calls and decisions of the script at lines to which no rank came."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program.files import FUNCTIONS, File, lines, name_of_scope
from ddpdoctor.program.program import Program
from ddpdoctor.recorder import operations
from ddpdoctor.trace.lines import JobLines, program_of
from ddpdoctor.trace.recording import Recording

KINDS: Mapping[str, tuple[str, ...]] = {
    "collective": tuple(f"torch.distributed.{name}" for name in operations.names("core")),
    "save": ("torch.save",),
    "load": ("torch.load",),
    "evaluation": ("torch.no_grad", "torch.inference_mode"),
}
DECISION = "decision"
_MOST = 100


@dataclass(frozen=True)
class Unreached:
    """A line to which no rank came."""

    kind: str
    """One of :data:`KINDS`, or ``decision``."""
    what: str
    """As it is written."""
    at: Where
    condition: str = ""
    """What would have had to be so, as it is written; empty where nothing stands in front of it."""


def not_reached(recordings: Mapping[int, Recording]) -> list[Unreached] | None:
    """The lines of interest to which no rank came, in their order; None where it is not known of every line."""
    search = _search(recordings)
    return list(search.found())[:_MOST] if search else None


def _search(recordings: Mapping[int, Recording]) -> _Search | None:
    job = JobLines.of(recordings)
    if job is None or not all(map(_is_complete, recordings.values())):
        return None
    return _Search(program_of(Where(next(iter(recordings.values())).script), recordings), job, recordings)


def _is_complete(recording: Recording) -> bool:
    """Whether every line was noticed, in each step from the first to the last."""
    steps = recording.lines.steps
    seen = {step.step for step in steps}
    return not any(step.partial for step in steps) and seen >= set(range(recording.step_count))


class _Search:
    def __init__(self, program: Program, job: JobLines, recordings: Mapping[int, Recording]) -> None:
        self._program = program
        self._reached = job.reached()
        self._functions = {
            (function.file, function.name.rpartition(".")[2])
            for of_rank in job.ranks.values()
            for step in of_rank.steps
            for function in step.lines
        }
        self._told: set[tuple[str, int | None]] = set()
        for recording in recordings.values():
            places = [it.at for it in recording.collectives]
            places += [*(it.at for it in recording.saves), *(it.at for it in recording.loads)]
            self._told |= {at.place for at in places if at is not None}
        self._has_workers = any(
            recording.children or any(loader.workers for loader in recording.loaders)
            for recording in recordings.values()
        )

    def found(self) -> Iterator[Unreached]:
        calls = {where: kind for kind, names in KINDS.items() for where in self._program.calls(*names)}
        for file in self._program.files.values():
            if file.path not in self._reached:
                continue
            of_file = [(where, kind) for where, kind in calls.items() if where.file == file.path]
            found = [it for where, kind in of_file if (it := self._call(file, where, kind))]
            found += self._decisions(file)
            yield from sorted(found, key=lambda it: it.at.line or 0)

    def may_be_reached(self, where: Where) -> bool:
        """Whether a rank came to a line, or nothing tells that none did."""
        file = self._program.file(where)
        if file is None or file.path not in self._reached or self._is_told(where):
            return True
        statement = next(reversed(file.statements_at(where.line)), None)
        simple = statement is not None and not hasattr(statement, "body")
        extent = lines(statement) if simple and statement is not None else [where.line or 0]
        if not self._reached[file.path].isdisjoint(extent):
            return True
        return not self._was_entered(file, where) and self._has_workers

    def _call(self, file: File, where: Where, kind: str) -> Unreached | None:
        names = {name.rpartition(".")[2] for name in KINDS[kind]}
        here = (call for call in file.calls if call.lineno == where.line)
        call = next((it for it in here if ast.unparse(it.func).rpartition(".")[2] in names), None)
        if call is None:
            return None
        function = file.parents.get(call)
        extent, at = lines(call), where
        if isinstance(function, FUNCTIONS):  # which it decorates
            extent, at = lines(*function.body), file.where(function.body[0])
        if not self._reached[file.path].isdisjoint(extent) or self._is_told(at):
            return None
        # What a DataLoader's worker or another process did is in no record of lines.
        if not self._was_entered(file, at) and self._has_workers:
            return None
        return self._unreached(file, kind, ast.unparse(call.func), at)

    def _is_told(self, where: Where) -> bool:
        """Whether an event tells of a line, or of one that calls its function, which only handed on."""
        places = [where, *self._program.callers(where)]
        return any(place.place in self._told for place in places)

    def _was_entered(self, file: File, where: Where) -> bool:
        return (file.path, name_of_scope(file.function_at(where.line))) in self._functions

    def _decisions(self, file: File) -> Iterator[Unreached]:
        reached = self._reached[file.path]
        for node in file.scopes:
            if not isinstance(node, ast.If | ast.While) or isinstance(node.test, ast.Constant):
                continue
            around = [it for it in file.above(node) if isinstance(it, ast.If | ast.While)]
            inside = any(reached.isdisjoint(lines(it.test)) for it in around)
            where = file.where(node)
            if reached.isdisjoint(lines(node.test)) and not inside and self._was_entered(file, where):
                what = f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
                yield self._unreached(file, DECISION, what, where)

    def _unreached(self, file: File, kind: str, what: str, where: Where) -> Unreached:
        places = [where] if self._was_entered(file, where) else [where, *self._program.callers(where)]
        for place in places:
            for condition in reversed(self._program.conditions(place)):
                if condition.at.line in self._reached.get(condition.at.file, ()):
                    text = condition.test.text if condition.holds else f"not ({condition.test.text})"
                    return Unreached(kind, what, where, text)
        return Unreached(kind, what, where)


def reached_lines(recordings: Mapping[int, Recording]) -> Callable[[Where], bool] | None:
    """Whether a rank came to a line, or may have; None where it is not known of every line."""
    search = _search(recordings)
    return search.may_be_reached if search else None

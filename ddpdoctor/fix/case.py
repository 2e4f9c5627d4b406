"""What a patch is given: a finding, what the run recorded, and the user's files."""

import ast
import os
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.edits import Edit
from ddpdoctor.fix.reading import DDP
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Finding, Kind, Where
from ddpdoctor.program import Program
from ddpdoctor.trace import Trace

_INSTALLED = ("site-packages", "dist-packages")


class Project:
    """The user's files, as they are or as an earlier patch leaves them.

    Args:
        folder: the working directory of the run, to which findings' files are relative.
        texts: what stands in files that differ from what is on disk.
        as_it_ran: whether a file has the content that it had in the run.
        real: the user's own file in place of one of a copy.
    """

    def __init__(
        self,
        folder: Path,
        texts: Mapping[Path, bytes] | None = None,
        as_it_ran: Callable[[Path], bool] = lambda _: True,
        real: Callable[[str], str] = str,
    ) -> None:
        self.folder, self._as_it_ran, self._real = folder, as_it_ran, real
        self.texts = texts or {}
        self.scripts: tuple[Path, ...] = ()
        self._sources: dict[Path, Source] = {}
        self._programs: dict[str, Program] = {}

    def learn(self, trace: Trace) -> None:
        """Learn from a run with which files its ranks were started."""
        recordings = [*(rank.recording for rank in trace.ranks), *trace.others]
        names = dict.fromkeys(recording.script for recording in recordings if recording and recording.script)
        self.scripts = tuple(path for path in map(self.path, names) if path.is_file())

    def path(self, file: str) -> Path:
        """The absolute path of a file that a finding names."""
        return Path(os.path.normpath(self.folder / self._real(file)))

    def source(self, file: str) -> Source:
        """A file that a finding names; CannotPatch where it is no file of the user's that can be changed."""
        path = self.path(file)
        if path not in self._sources:
            _refuse_installed(path)
            if path not in self.texts and path.exists() and not self._as_it_ran(path):
                raise CannotPatch(f"{path.name} changed since the run")
            self._sources[path] = Source(path, self, self._program_of(path), self.texts.get(path))
        return self._sources[path]

    def name(self, path: Path) -> str:
        """How a program of it names a file: as the checks do, which have read the same program."""
        is_below = self.folder == Path.cwd() and path.is_relative_to(self.folder)
        return str(path.relative_to(self.folder) if is_below else path)

    def _program_of(self, path: Path) -> Program:
        """The program of the script that a file is part of; what the file itself imports where it is part of none."""
        texts = {self.name(changed): raw for changed, raw in self.texts.items()}
        for script in map(self.name, (*self.scripts, path)):
            if script not in self._programs:
                self._programs[script] = Program(script, texts=texts) if texts else Program.of(script)
            if self.name(path) in self._programs[script].files:
                break
        return self._programs[script]

    def take(self) -> dict[Path, list[Edit]]:
        """The edits that were made of each file, which are then forgotten."""
        edits = {path: source.take() for path, source in self._sources.items()}
        return {path: of_file for path, of_file in edits.items() if of_file}

    def after(self, edits: Mapping[Path, Iterable[Edit]]) -> dict[Path, bytes]:
        """What stands in the files after these edits; CannotPatch if they do not go together, or leave no Python."""
        sources = {path: self._sources[path] for path in edits}
        return {path: source.encoded(source.after(edits[path])) for path, source in sources.items()}


def _refuse_installed(path: Path) -> None:
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    if any(part in _INSTALLED for part in path.parts) or any(path.is_relative_to(at) for at in installed):
        raise CannotPatch(f"{path.name} belongs to an installed package")


@dataclass
class Case:
    """A finding that a patch may cure. Patches edit the sources that they get from here."""

    finding: Finding
    trace: Trace
    project: Project

    def __post_init__(self) -> None:
        if not self.project.scripts:
            self.project.learn(self.trace)

    @property
    def source(self) -> Source:
        """The file that the finding names; CannotPatch where it names none."""
        if self.finding.where is None or self.finding.where.line is None:
            raise CannotPatch("the finding names no line")
        return self.project.source(self.finding.where.file)

    @property
    def scripts(self) -> list[Source]:
        """The files that the ranks were started with, as far as known; CannotPatch if one cannot be changed."""
        return [self.project.source(str(path)) for path in self.project.scripts]

    @property
    def line(self) -> int:
        """The line that it names."""
        assert self.finding.where is not None
        return self.finding.where.line or 0

    @property
    def statement(self) -> Node:
        """The innermost statement at its line."""
        return self.source.statement_at(self.line)

    @property
    def loop(self) -> Node:
        """The loop that begins at its line, or the innermost around it; CannotPatch where there is none."""
        loops = self.source.on_line(self.line, ast.For)
        if not loops:
            raise CannotPatch(f"line {self.line} is in no loop")
        return next((loop for loop in loops if loop.lineno == self.line), loops[0])

    def calls(self, *names: str) -> list[Node]:
        """The calls of these names in the statement at its line."""
        return self.source.calls(*names, within=self.statement)

    def call_at(self, where: Where | None, *names: str) -> tuple[Source, Node]:
        """The first call of one of these names in the statement at a line, and its file; else CannotPatch."""
        either = " or ".join(name.rpartition(".")[2] for name in names)
        if where is None or where.line is None:
            raise CannotPatch(f"it is not known where {either} is called")
        source = self.project.source(where.file)
        chosen = [call for call in source.on_line(where.line, ast.Call) if source.means(call.func, *names)]
        if not chosen:
            raise CannotPatch(f"line {where.line} of {source.path.name} does not call {either}")
        return source, chosen[0]

    def wraps(self) -> list[tuple[Source, Node]]:
        """The calls that wrapped a module in the run, else those in the finding's file; CannotPatch of none."""
        wrappers = [wrapper for recording in self.trace.recorded.values() for wrapper in recording.wrappers]
        made = [wrapper.at for wrapper in wrappers if wrapper.at and not wrapper.library]
        if places := {(place.file, place.line): place for place in made}:
            return [self.call_at(place, DDP) for place in places.values()]
        inside = [(self.source, call) for call in self.source.calls(DDP)]
        if not inside:
            raise CannotPatch("no DistributedDataParallel is called there")
        return inside

    def loaders(self) -> list[Where]:
        """Where the DataLoaders that the finding is about were made."""
        names = [it.name.rpartition(":") for it in self.finding.about if it.kind is Kind.LOADER]
        return [Where(file, int(line)) for file, _, line in names if file and line.isdigit()]

    @property
    def loader(self) -> Where | None:
        """Where the first of them was made; else its own line."""
        return next(iter(self.loaders()), self.finding.where)

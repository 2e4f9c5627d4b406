"""The patches that may cure a finding, as edits of the user's files, and as a fix in the script's own words."""

import ast
import contextlib
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from ddpdoctor import registry
from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.edits import Edit, Text, changed_lines
from ddpdoctor.fix.patches import patch_names, patches
from ddpdoctor.fix.reading import DDP, DIST, LOADER, SAMPLER, argument, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Finding
from ddpdoctor.trace import Trace

_UNKNOWN = (LookupError, AttributeError, TypeError, ValueError, AssertionError, RecursionError, StopIteration)
"""What a patch raises that meets other nodes than it was written for: no reason to lose a report."""
Edits: TypeAlias = Mapping[Path, tuple[Edit, ...]]
"""By the absolute path of the file; of the files as they are in the project."""


@dataclass(frozen=True)
class Proposal:
    """A change that may cure a finding."""

    finding: Finding
    title: str
    edits: Edits
    leaves_choice: bool = False
    """Whether the finding's fix names other ways, too."""


def proposals(finding: Finding, trace: Trace, project: Project, refusals: list[str]) -> Iterator[Proposal]:
    """What may cure a finding, the preferred first; ``refusals`` is given why a patch cannot be made."""
    check = registry.by_code(finding.code)
    if check is not None and trace.framework in check.fix_with:
        refusals.append("a framework makes what would have to change; the fix is in its words")
        return
    project.learn(trace)
    for name in patch_names(finding.code):
        patch = patches()[name]
        try:
            title = patch.apply(Case(finding, trace, project))
            edits = {path: tuple(of_file) for path, of_file in project.take().items()}
            project.after(edits)
        except (CannotPatch, *_UNKNOWN) as refusal:
            project.take()
            unknown = "the script is written in a way that the patch does not know"
            refusals.append(str(refusal) if isinstance(refusal, CannotPatch) else unknown)
            continue
        if edits:
            yield Proposal(finding, title, edits, patch.leaves_choice)


_Changed = tuple[int, int, str]
_MOST_LINES = 6
"""Of a fix; of a longer one the patch shows more."""
_MOST_FINDINGS = 20


def in_own_words(
    findings: Iterable[Finding], trace: Trace, folder: Path, as_it_ran: Callable[[Path], bool]
) -> tuple[Finding, ...]:
    """The findings with their fixes in the script's words: the lines of a patch that says all of it, else its names.
    The folder is the working directory of the run; ``as_it_ran`` is whether a file has the content that it had in
    that."""
    project = Project(folder, as_it_ran=as_it_ran)
    project.learn(trace)
    findings = iter(findings)
    first = [_told(finding, trace, project) for finding in islice(findings, _MOST_FINDINGS)]
    return (*first, *findings)


def _told(finding: Finding, trace: Trace, project: Project) -> Finding:
    if finding.where is None:
        return finding
    with contextlib.suppress(CannotPatch, *_UNKNOWN):
        proposal = next(proposals(finding, trace, project, []), None)
        words = "\n".join(_lines(proposal, project)) if proposal and not proposal.leaves_choice else ""
        if words and words.count("\n") < _MOST_LINES:
            return replace(finding, fix=words, mechanical=True)
        if finding.where.line is not None:
            source = project.source(finding.where.file)
            return replace(finding, fix=in_names_of(source, finding.where.line, finding.fix))
    return finding


def _lines(proposal: Proposal, project: Project) -> Iterator[str]:
    """What stands in place of which lines, or before which."""
    for path, raw in project.after(proposal.edits).items():
        first, second = project.source(str(path)).text, Text(path, raw).text
        where = proposal.finding.where
        elsewhere = where is None or project.path(where.file) != path
        for line, removed, text in _in_whole_statements(changed_lines(first, second), second):
            last = f"-{line + removed - 1}" if removed > 1 else ""
            place = f"line{'s' * (removed > 1)} {line}{last}{f' of {path.name}' if elsewhere else ''}"
            if not text:
                yield f"# delete {place}"
                continue
            code, *others = textwrap.dedent(text).strip("\n").split("\n")
            yield f"{code}    # {'in place of' if removed else 'before'} {place}{_indented(first, line, removed, text)}"
            yield from others


def _in_whole_statements(changes: Iterable[_Changed], text: str) -> Iterator[_Changed]:
    """The changes that lead to a text, each with all lines of the statements that it is in or puts under another."""
    lines, shift = text.split("\n"), 0
    statements = [it for it in ast.walk(ast.parse(text)) if isinstance(it, ast.stmt)]
    for line, removed, added in changes:
        begin, count = line + shift, added.count("\n")
        shift += count - removed
        end = begin + count
        around = [
            it
            for it in statements
            if (it.lineno < end and begin <= (it.end_lineno or 0) and not hasattr(it, "body"))
            or (it.lineno == end - 1 and hasattr(it, "body") and not removed)
        ]
        first = min([begin, *(it.lineno for it in around)])
        last = max([begin + count - 1, *(it.end_lineno or 0 for it in around)])
        more = last - first + 1 - count
        yield line - (begin - first), removed + more, "\n".join(lines[first - 1 : last]) if more else added


def _indented(first: str, line: int, removed: int, text: str) -> str:
    """How far code is indented that stands further left or right than the line that it replaces."""
    replaced = first.split("\n")[line - 1] if removed else text
    was, now = (len(it) - len(it.lstrip()) for it in (replaced, text))
    return f", indented by {now}" if now != was else ""


_IMPORTED = {
    "dist": DIST,
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    **{name.rpartition(".")[2]: name for name in (DDP, LOADER, SAMPLER)},
}
_SCHEDULERS = "torch.optim.lr_scheduler."
_MADE_BY: Mapping[str, Callable[[str], bool]] = {
    "model": lambda name: name == DDP,
    "loader": lambda name: name == LOADER,
    "sampler": lambda name: name == SAMPLER,
    "scheduler": lambda name: name.startswith(_SCHEDULERS),
    "optimizer": lambda name: name.startswith("torch.optim.") and not name.startswith(_SCHEDULERS),
    "scaler": lambda name: name.endswith(".GradScaler"),
}
"""What an object is called in a fix, by the class that made it."""


def in_names_of(source: Source, line: int, fix: str) -> str:
    """A fix whose lines of Python have the names that the script has for the same things at a line; CannotPatch where
    there is no statement at this line."""
    at = source.statement_at(line)
    names: dict[str, str | None] = {}

    def name_of(general: str) -> str:
        if general not in names:
            names[general] = _name(source, at, general)
        return names[general] or general

    return "\n".join(_renamed(code, name_of) for code in fix.split("\n"))


def _renamed(line: str, name_of: Callable[[str], str]) -> str:
    """A line with its variables renamed; as it is where it is no Python."""
    code = line.strip()
    opens = code.partition("#")[0].rstrip().endswith(":")
    with contextlib.suppress(SyntaxError, ValueError):
        tree = ast.parse(f"{code.partition('#')[0]}pass" if opens else code)
        variables = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        margin = len(line) - len(line.lstrip())
        for node in sorted(variables, key=lambda it: -it.col_offset):
            begin, name = margin + node.col_offset, name_of(node.id)
            if isinstance(node.ctx, ast.Load) or "(" not in name:
                line = line[:begin] + name + line[begin + len(node.id) :]
    return line


def _name(source: Source, at: Node, general: str) -> str | None:
    """What the script calls this at a statement; None where it has no name for it, or several."""
    if full := _IMPORTED.get(general):
        return next((local for local, bound in source.bound().items() if bound == full), None)
    if made_by := _MADE_BY.get(general):
        types = source.program.flow.types
        return source.readable(at, lambda it: any(isinstance(one, str) and made_by(one) for one in types(it)))
    found = {name for name in _NAMES[general](source, at) if name} if general in _NAMES else set()
    return found.pop() if len(found) == 1 else None


def _rank(source: Source, at: Node) -> Iterator[str]:
    yield source.rank(at, plain=True)
    source.take()  # of an import that the name would need


def _epochs(source: Source, at: Node) -> Iterator[str | None]:
    loops = [it for it in source.above(at) if isinstance(it, ast.For) and source.is_numbered(it.iter)]
    yield from (dotted(it.target) for it in loops[-1:] if dotted(it.target) != "_")


_NAMES: Mapping[str, Callable[[Source, Node], Iterable[str | None]]] = {
    "rank": _rank,
    "local_rank": lambda source, at: [source.local_rank(at)],
    "dataset": lambda source, _: [dotted(argument(it, 0, "dataset")) for it in source.calls(LOADER, SAMPLER)],
    "loss": lambda source, at: [
        dotted(getattr(it.func, "value", None)) for it in source.calls("backward", within=source.scope(at))
    ],
    "epoch": _epochs,
}
"""What else is called by one word in a fix, by where the script has its name."""

"""The general lines of a fix with the script's own names in place of ``model``, ``loader`` and their like."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from ddpdoctor.fix.reading import DDP, DIST, LOADER, SAMPLER, argument, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source

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
    """A fix whose lines of Python have the names that the script has for the same things at a line.

    Raises:
        CannotPatch: there is no statement at this line.
    """
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

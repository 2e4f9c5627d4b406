"""What names mean in a file: its imports, and the names that it may use."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.source import Node, Source

DIST = "torch.distributed"


def dotted(node: Node) -> str | None:
    """``a.b.c`` as a text; None for anything else."""
    if isinstance(node, cst.Name):
        name: str = node.value
        return name
    if isinstance(node, cst.Attribute) and (value := dotted(node.value)):
        return f"{value}.{node.attr.value}"
    return None


def imported(source: Source) -> dict[str, str]:
    """What the file's imports at its top level bind, and to what: ``{"dist": "torch.distributed"}``."""
    names: dict[str, str] = {}
    for node in source.all(cst.Import, cst.ImportFrom):
        if source.enclosing(node, cst.FunctionDef, cst.ClassDef) or isinstance(node.names, cst.ImportStar):
            continue
        parent = f"{dotted(node.module)}." if isinstance(node, cst.ImportFrom) and node.module else ""
        for alias in node.names:
            name = dotted(alias.name) or ""
            local = alias.asname.name.value if alias.asname else name if parent else name.partition(".")[0]
            names[local] = parent + name if alias.asname or parent else local
    return names


def qualified(source: Source, node: Node) -> str | None:
    """The full name of what an expression such as ``dist.barrier`` means."""
    name = dotted(node)
    if name is None:
        return None
    first, _, rest = name.partition(".")
    return ".".join(filter(None, [imported(source).get(first, first), rest]))


def callee(source: Source, call: Node) -> str:
    """The last part of the full name of what is called: ``DistributedDataParallel`` for ``DDP(net)``."""
    name = qualified(source, call.func)
    if name is None:
        return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    return name.rpartition(".")[2]


def calls(source: Source, *names: str, within: Node = None) -> list[Node]:
    """All calls of what has one of these names."""
    return [call for call in source.all(cst.Call, within=within) if callee(source, call) in names]


def argument(call: Node, name: str, position: int | None = None) -> Node | None:
    """An argument of a call, by its keyword or its position."""
    for number, arg in enumerate(call.args):
        if arg.keyword.value == name if arg.keyword else (number == position and not arg.star):
            return arg
    return None


def use(source: Source, target: str) -> str:
    """How the file may write this name, by the imports that it has; an import is added where it takes one.

    Args:
        target: the full name, such as ``torch.distributed.barrier``.
    """
    names = imported(source)
    parent, _, last = target.rpartition(".")
    by_last = [local for local, full in names.items() if full.rpartition(".")[2] == last and "." in full]
    if by_last and last[0].isupper() and names[by_last[0]].partition(".")[0] == target.partition(".")[0]:
        return by_last[0]
    for local, full in sorted(names.items(), key=lambda item: -len(item[1])):
        if full == target:
            return local
        rest = target.removeprefix(f"{full}.")
        # nn.Linear reads well, nn.parallel.DistributedDataParallel is rather imported, and may have to be.
        if rest != target and (rest.count(".") == 0 or parent in (DIST, f"{DIST}.{rest.partition('.')[0]}")):
            return local + target[len(full) :]
    if parent == "torch":
        _import_statement(source, parent, "import torch")
        return target
    if parent == DIST and not re.search(r"\bdist\b", source.text):
        _import_statement(source, parent, f"import {DIST} as dist")
        return f"dist.{last}"
    import_name(source, parent, last)
    return last


def use_module(source: Source, name: str) -> str:
    """How the file may write the name of a module of the standard library, which is imported where it is not."""
    for local, full in imported(source).items():
        if full == name:
            return local
    _import_statement(source, name, f"import {name}")
    return name


def import_name(source: Source, parent: str, name: str) -> None:
    """Import a name from a module, beside what is imported from there."""
    for node in source.all(cst.ImportFrom):
        usual = dotted(node.module) == parent if node.module else False
        if (
            usual
            and not isinstance(node.names, cst.ImportStar)
            and not source.enclosing(node, cst.FunctionDef)
        ):
            _add_name(source, node.names, name)
            return
    _import_statement(source, parent, f"from {parent} import {name}")


def define(source: Source, code: str) -> None:
    """A new function at the top level: before the first that is there, else behind the imports."""
    places = (cst.FunctionDef, cst.ClassDef)
    first = next((node for node in source.tree.body if isinstance(node, places)), None)
    if first is not None:
        source.insert_before(first, f"{code}\n\n")
    else:
        source.insert_after(_imports(source)[-1], f"\n\n{code}\n")


def _import_statement(source: Source, module: str, line: str) -> None:
    """A new import in its alphabetical place: of the standard library before the others, else among them."""
    statements = _imports(source)
    is_standard = module.partition(".")[0] in sys.stdlib_module_names
    group = [statement for statement in statements if _is_standard(statement.body[0]) is is_standard]
    if not group:
        source.insert_before(statements[0], f"{line}\n") if is_standard else source.insert_after(
            statements[-1], line
        )
        return
    package = module.partition(".")[0]
    related = [statement for statement in group if _module(statement.body[0]).partition(".")[0] == package]
    alike = [statement for statement in related or group if source.code(statement)[0] == line[0]]
    later = [statement for statement in alike if source.code(statement) > line]
    if later:
        source.insert_before(later[0], line)
    elif line.startswith("import") and not alike:
        source.insert_before((related or group)[0], line)
    else:
        source.insert_after((alike or related or group)[-1], line)


def _is_standard(node: Node) -> bool:
    return _module(node).partition(".")[0] in sys.stdlib_module_names


def _module(node: Node) -> str:
    """The module that an import is from; empty for one that is relative."""
    return dotted(node.module if isinstance(node, cst.ImportFrom) else node.names[0].name) or ""


def _add_name(source: Source, aliases: Sequence[Node], name: str) -> None:
    """A name more in an import, in its alphabetical place where the others are."""
    names = [dotted(alias.name) or "" for alias in aliases]
    behind = next((number for number, other in enumerate(names) if other > name), None)
    if behind is not None and names == sorted(names):
        begin = source.span(aliases[behind])[0]
        source.replace_span(begin, begin, f"{name}, ")
    else:
        end = source.span(aliases[-1])[1]
        source.replace_span(end, end, f", {name}")


def _imports(source: Source) -> list[Node]:
    statements = [
        statement
        for statement in source.tree.body
        if isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], (cst.Import, cst.ImportFrom))
        and not _is_future(statement.body[0])
    ]
    if not statements:
        raise CannotPatch(f"{source.path.name} has no imports at its top")
    return statements


def _is_future(node: Node) -> bool:
    """Whether it is ``from __future__ import``, which has to come first."""
    return _module(node) == "__future__"

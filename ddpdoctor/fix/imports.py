"""How a file may write a name: by the imports that it has, or by one more."""

from __future__ import annotations

import ast
import sys

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.source import Node, Nodes
from ddpdoctor.program.files import FUNCTIONS

DIST = "torch.distributed"
_IMPORTS = (ast.Import, ast.ImportFrom)


class Imports(Nodes):
    """A file of the user's, which may write names by the imports that it has, or by one more."""

    def bound(self) -> dict[str, str]:
        """What the file's imports at its top level bind, and to what: ``{"dist": "torch.distributed"}``."""
        names: dict[str, str] = {}
        for node in self.file.imports:
            if self.enclosing(node, *FUNCTIONS, ast.ClassDef):
                continue
            parent = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
            for alias in node.names:
                local = alias.asname or (alias.name if parent else alias.name.partition(".")[0])
                names[local] = parent + alias.name if alias.asname or parent else local
        return names

    def use(self, target: str) -> str:
        """How the file may write this name, by the imports that it has; an import is added where it takes one.

        Args:
            target: the full name, such as ``torch.distributed.barrier``; or a module, such as ``os``.
        """
        names = self.bound()
        parent, _, last = target.rpartition(".")
        by_last = [local for local, full in names.items() if full.rpartition(".")[2] == last and "." in full]
        if by_last and last[0].isupper() and names[by_last[0]].partition(".")[0] == target.partition(".")[0]:
            return by_last[0]
        for local, full in sorted(names.items(), key=lambda item: -len(item[1])):
            if full == target:
                return local
            rest = target.removeprefix(f"{full}.")
            # nn.Linear reads well, nn.parallel.DistributedDataParallel is rather imported, and may have to be.
            if rest != target and (
                rest.count(".") == 0 or parent in (DIST, f"{DIST}.{rest.partition('.')[0]}")
            ):
                return local + target[len(full) :]
        if parent in ("", "torch"):
            self._import_statement(f"import {parent or target}")
            return target
        if parent == DIST and "dist" not in names and not self._is_variable("dist"):
            self._import_statement(f"import {DIST} as dist")
            return f"dist.{last}"
        self.import_name(parent, last)
        return last

    def _is_variable(self, name: str) -> bool:
        return any(node.id == name for node in self.all(ast.Name))

    def import_name(self, parent: str, name: str) -> None:
        """Import a name from a module, beside what is imported from there."""
        for node in self.file.imports:
            is_from = isinstance(node, ast.ImportFrom) and node.module == parent and node.names[0].name != "*"
            if is_from and not self.enclosing(node, *FUNCTIONS):
                self._add_name(node, name)
                return
        self._import_statement(f"from {parent} import {name}")

    def define(self, code: str) -> None:
        """A new function at the top level: before the first that is there, else behind the imports."""
        places = (*FUNCTIONS, ast.ClassDef)
        first = next((node for node in self.tree.body if isinstance(node, places)), None)
        if first is not None:
            self.insert_before(first, f"{code}\n\n")
        else:
            self.insert_after(self._imports()[-1], f"\n\n{code}\n")

    def _import_statement(self, line: str) -> None:
        """A new import in its alphabetical place: of the standard library before the others, else among them."""
        statements, package = self._imports(), line.split()[1].partition(".")[0]
        is_standard = package in sys.stdlib_module_names
        group = [it for it in statements if (_package(it) in sys.stdlib_module_names) is is_standard]
        if not group:
            if is_standard:
                self.insert_before(statements[0], f"{line}\n")
            else:
                self.insert_after(statements[-1], line)
            return
        related = [it for it in group if _package(it) == package]
        alike = [it for it in related or group if self.code(it)[0] == line[0]]
        later = [it for it in alike if self.code(it) > line]
        if later:
            self.insert_before(later[0], line)
        elif line.startswith("import") and not alike:
            self.insert_before((related or group)[0], line)
        else:
            self.insert_after((alike or related or group)[-1], line)

    def _add_name(self, node: Node, name: str) -> None:
        """A name more in an import, in its alphabetical place where the others are."""
        names = [alias.name for alias in node.names]
        behind = next((number for number, other in enumerate(names) if other > name), None)
        if behind is not None and names == sorted(names):
            begin = self.span(node.names[behind])[0]
            self.replace_span(begin, begin, f"{name}, ")
        else:
            end = self.span(node.names[-1])[1]
            self.replace_span(end, end, f", {name}")

    def _imports(self) -> list[Node]:
        statements = [
            it for it in self.tree.body if isinstance(it, _IMPORTS) and _package(it) != "__future__"
        ]
        if not statements:
            raise CannotPatch(f"{self.path.name} has no imports at its top")
        return statements


def _package(node: Node) -> str:
    """The package that an import is from; empty for one that is relative."""
    module = (
        (node.module if not node.level else "") if isinstance(node, ast.ImportFrom) else node.names[0].name
    )
    return (module or "").partition(".")[0]

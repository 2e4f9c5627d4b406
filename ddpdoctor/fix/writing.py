"""Lines that patches add: names by imports, there or one more; what runs on one rank; and what ranks agree on."""

import ast
import re
import sys
from collections.abc import Iterable

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.reading import DIST, INIT, Reading, argument, arguments, dotted, is_method
from ddpdoctor.fix.source import Node
from ddpdoctor.program.files import FUNCTIONS
from ddpdoctor.program.index import Entity, Point
from ddpdoctor.program.known import SPAWNS

_IMPORTS = (ast.Import, ast.ImportFrom)


class Source(Reading):
    """A file of the user's, as patches read and change it."""

    # -- names --------------------------------------------------------------------------------------------

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
        """How the file may write a full name, such as ``torch.distributed.barrier``, or that of a module, such as
        ``os``: by the imports that it has; an import is added where it takes one."""
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
            reads_well = "." not in rest or parent in (DIST, f"{DIST}.{rest.partition('.')[0]}")
            if rest != target and reads_well:
                return local + target[len(full) :]
        if parent in ("", "torch"):
            self._import_statement(f"import {parent or target}")
            return target
        if parent == DIST and "dist" not in {*names, *(it.id for it in self.all(ast.Name))}:
            self._import_statement(f"import {DIST} as dist")
            return f"dist.{last}"
        self.import_name(parent, last)
        return last

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
        statements = [it for it in self.tree.body if isinstance(it, _IMPORTS)]
        if own := [it for it in statements if _package(it) != "__future__"]:
            return own
        raise CannotPatch(f"{self.path.name} has no imports at its top")

    def free(self, at: Node, name: str) -> str:
        """A name for a new variable: this one, or one like it where the function has it already."""
        scope = self.scope(at)
        taken = {node.id for node in self.all(ast.Name, within=scope)}
        taken |= {node.arg for node in self.all(ast.arg, within=scope)}
        others = (name, f"rank_{name}", f"new_{name}", f"{name}_2")
        return next(it for it in others if it not in taken)

    # -- the process group ----------------------------------------------------------------------------------

    def rank(self, at: Node, *, plain: bool = False) -> str:
        """The rank, as the file may write it here: its own variable, or a call. It is 0 without a process group, unless
        it is ``plain`` that there is one wherever this runs."""
        return self._from_group(at, "get_rank", "" if plain else "0")

    def world_size(self, at: Node, *, plain: bool = False) -> str:
        """The number of ranks, as the file may write it here; ``plain`` as for :func:`rank`."""
        return self._from_group(at, "get_world_size", "" if plain else "1")

    def local_rank(self, at: Node) -> str | None:
        """The number of the rank on its host, as the file may write it here; None where it has no name for it."""
        return self.readable(at, lambda point: self._gives(point, "get_node_local_rank"))

    def _from_group(self, at: Node, function: str, alone: str) -> str:
        if name := self.readable(at, lambda point: self._gives(point, function)):
            return name
        # A function of the script's own knows what to say of a single process.
        for call in (it for it in self.file.calls if dotted(it.func) and not arguments(it)):
            point = self.point(call)
            is_own = any(isinstance(it, Entity) for it in self.program.flow.called(point))
            if is_own and self._gives(point, function):
                return str(self.code(call))
        written = f"{self.use(f'{DIST}.{function}')}()"
        is_alone = alone and self.may_lack_group()
        return f"({written} if {self.has_group()} else {alone})" if is_alone else written

    def has_group(self) -> str:
        """Whether there is a process group, as the file may write it."""
        return f"{self.use(f'{DIST}.is_initialized')}()"

    def under_condition(self, statement: Node, condition: str) -> None:
        """Put a statement under a condition; a condition that it is gets one more."""
        if not isinstance(statement, ast.If) or statement.orelse:
            self.indent_lines(statement, f"if {condition}:")
            return
        either = isinstance(statement.test, ast.BoolOp) and isinstance(statement.test.op, ast.Or)
        begin, end = self.span(statement.test)
        first = f"({condition})" if " or " in condition else condition
        self.replace_span(begin, begin, f"{first} and {'(' * either}")
        self.replace_span(end, end, ")" * either)

    def is_rank_0(self, at: Node) -> str:
        """The condition for rank 0, as it can be written here: before the group is initialized, by the variable."""
        inits = self.calls(INIT)
        if any(self.scope(call) is self.scope(at) and at.lineno < call.lineno for call in inits):
            return f'{self.use("os")}.environ.get("RANK", "0") == "0"'
        for call in self.file.calls:  # a function of the script's own
            if dotted(call.func) and not arguments(call) and self.tells_rank_0(call):
                return str(self.code(call))
        number = self.rank(at)
        if number.startswith("("):
            return f"not {self.has_group()} or {self.rank(at, plain=True)} == 0"
        return f"{number} == 0"

    def is_local_rank_0(self, at: Node) -> str:
        """The condition for one rank of each host, as it can be written here; CannotPatch where the script starts its
        ranks itself, and the file does not tell which is the first of its host."""
        if name := self.local_rank(at):
            return f"{name} == 0"
        if self.calls(*SPAWNS):
            raise CannotPatch("it is not known which rank is the first of its host")
        return f'{self.use("os")}.environ.get("LOCAL_RANK", "0") == "0"'

    def barrier(self) -> str:
        """A barrier, as the file may write it."""
        return self.with_group(f"{self.use(f'{DIST}.barrier')}()")

    def with_group(self, code: str) -> str:
        """Lines that need a process group; under a condition where the script does without in a single process."""
        if not self.may_lack_group():
            return code
        lines = "\n".join(f"\t{line}" for line in code.split("\n"))
        return f"if {self.has_group()}:\n{lines}"

    def module_of(self, wrapper: str) -> str:
        """``model.module``; the model itself where a single process, without a process group, does not wrap it."""
        inside = f"{wrapper}.module"
        return f"({inside} if {self.has_group()} else {wrapper})" if self.may_lack_group() else inside

    def mean(self, at: Node, value: str, name: str) -> str:
        """Lines that put the mean over ranks of a number into a variable."""
        first = f"{name} = {value}\n" if self.may_lack_group() else ""
        return first + self.with_group(self._mean(at, name if first else value, name))

    def means_of(self, at: Node, numbers: Iterable[str]) -> str:
        """Lines that put the mean over ranks of each number in its place, a variable or an entry of a dictionary."""
        return self.with_group("\n".join(self._mean(at, number, number) for number in numbers))

    def _mean(self, at: Node, value: str, name: str) -> str:
        tensor = f"{re.sub(r'[^0-9A-Za-z_]+', '_', name).strip('_')}_mean"
        return (
            f"{tensor} = {self.tensor_of(at, value)}\n"
            f"{self.use(f'{DIST}.all_reduce')}({tensor})\n"
            f"{name} = {tensor}.item() / {self.world_size(at, plain=True)}"
        )

    def any_rank(self, at: Node, condition: str, name: str) -> str:
        """Lines that put into a variable whether a condition is true on any rank."""
        reduce, greatest = self.use(f"{DIST}.all_reduce"), self.use(f"{DIST}.ReduceOp")
        together = self.with_group(f"{reduce}({name}, op={greatest}.MAX)")
        return f"{name} = {self.tensor_of(at, condition)}\n{together}"

    def tensor_of(self, at: Node, value: str) -> str:
        """A number as a tensor that ranks can reduce: NCCL reduces on GPUs only."""
        device = self._device(at)
        option = f", device={device}" if device else ""
        return f"{self.use('torch.tensor')}(float({value}){option})"

    def _device(self, at: Node) -> str:
        """The device of this rank, as the file may write it here; empty if it names no GPU, CannotPatch if unknown."""
        if name := self.readable(at, self._is_device):
            return name
        # What the text does not define, such as an option, is known by how this function uses it.
        used = [value for call in self.all(ast.Call, within=self.scope(at)) if (value := _as_device(call))]
        for given in used:
            if isinstance(given, ast.Attribute) and not self.program.flow.copies(self.point(given)):
                return self.code(given)
        if self.calls("torch.cuda.set_device"):
            return '"cuda"'
        if re.search(r"cuda|nccl", self.text):
            raise CannotPatch("it is not known which device the numbers of a rank belong to")
        return ""

    def _is_device(self, point: Point) -> bool:
        """Whether a value was made as a device, or is the name of one."""
        ends = self.program.flow.ends(point)
        return bool(ends) and all(self._is_end_of_device(end) for end in ends)

    def _is_end_of_device(self, end: Point) -> bool:
        if isinstance(end.node, ast.Call):
            return "torch.device" in self.program.flow.referents(end.at(end.node.func))
        return isinstance(end.node, (ast.Constant, ast.JoinedStr)) and _names_device(end.node)

    def plain_if(self, node: Node) -> Node:
        """An if without elif and else; CannotPatch where it has one, or is one."""
        if node.orelse or self.code(node).startswith("elif"):
            raise CannotPatch(f"the condition at line {node.lineno} has more branches")
        return node


def _names_device(node: Node) -> bool:
    text = node.value if isinstance(node, ast.Constant) else getattr(node.values[0], "value", "")
    return isinstance(text, str) and text.partition(":")[0] in ("cuda", "cpu")


def _as_device(call: Node) -> Node | None:
    """What a call is given as a device: ``x.to(device)``, ``device=self.device``."""
    return argument(call, 0 if is_method(call, "to") else None, "device")


def _package(node: Node) -> str:
    """The package that an import is from; empty for one that is relative."""
    module: str | None = node.names[0].name
    if isinstance(node, ast.ImportFrom):
        module = None if node.level else node.module
    return (module or "").partition(".")[0]

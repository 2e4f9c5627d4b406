"""Lines that patches add: what runs on one rank, and what ranks agree on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.imports import DIST
from ddpdoctor.fix.reading import INIT, Reading, argument, arguments, dotted, is_method
from ddpdoctor.fix.source import Node
from ddpdoctor.program.index import Point
from ddpdoctor.program.known import SPAWNS


class Source(Reading):
    """A file of the user's, as patches read and change it."""

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
        """The condition for one rank of each host, as it can be written here.

        Raises:
            CannotPatch: the script starts its ranks itself, and the file does not tell which is the first of its host.
        """
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
        """The device of this rank, as the file may write it here; empty in a file that names no GPU.

        Raises:
            CannotPatch: the file does not tell.
        """
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
        flow = self.program.flow
        ends = flow.ends(point)
        return bool(ends) and all(
            (isinstance(end.node, ast.Call) and "torch.device" in flow.referents(end.at(end.node.func)))
            or (isinstance(end.node, (ast.Constant, ast.JoinedStr)) and _names_device(end.node))
            for end in ends
        )

    def plain_if(self, node: Node) -> Node:
        """An if without elif and else.

        Raises:
            CannotPatch: it has one, or is one.
        """
        if node.orelse or self.code(node).startswith("elif"):
            raise CannotPatch(f"the condition at line {node.lineno} has more branches")
        return node


def _names_device(node: Node) -> bool:
    text = node.value if isinstance(node, ast.Constant) else getattr(node.values[0], "value", "")
    return isinstance(text, str) and text.partition(":")[0] in ("cuda", "cpu")


def _as_device(call: Node) -> Node | None:
    """What a call is given as a device: ``x.to(device)``, ``device=self.device``."""
    return argument(call, 0 if is_method(call, "to") else None, "device")

# ruff: noqa: N802 - libcst calls visitors by the names of its nodes
"""The same script under other names: a verdict must not depend on how its author spelled things.

Variables, functions, classes, and attributes and methods that only the script defines get new names; lines stay where
they are. What something else knows by its name keeps it: imports, keywords, methods that a base class calls, names
that appear in a string, because a parser of arguments or ``getattr`` may make an attribute of them.
"""

import builtins
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import libcst as cst
from libcst.helpers import ensure_type

NEUTRAL = tuple(f"n{number}" for number in range(400))
MISLEADING = tuple(
    f"{word}{number or ''}"
    for number in range(25)
    for word in (
        *("lora_rank", "use_master_weights", "is_main_part", "best_accuracy", "val_loss", "patience"),
        *(
            "ema_meter",
            "cleanup_now",
            "teardown_of",
            "accumulated",
            "interval_mean",
            "target_net",
            "averager",
        ),
        *("time_left", "world_size_of", "mesh_dp_group", "group_lr", "bright_score"),
    )
)
"""Words that rules of earlier releases took for a rank, a metric, a decision, an average of weights, a clock."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_ALWAYS_KEPT = frozenset({*dir(builtins), "self", "cls", "bucket"})  # the last is what DDP asks hooks for


def renamed(text: str, names: tuple[str, ...]) -> str:
    """A script's text with its own names replaced, in their order, by these."""
    module = cst.parse_module(text)
    known = _Names()
    module.visit(known)
    free = iter(names)
    variables = {name: next(free) for name in known.variables_to_rename()}
    attributes = {name: next(free) for name in known.attributes_to_rename()}
    return module.visit(_Renamed(variables, attributes)).code


def write_renamed(script: Path, folder: Path, names: tuple[str, ...]) -> Path:
    """The renamed script, in a file of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / script.name
    target.write_text(renamed(script.read_text(), names))
    return target


def _known_attributes() -> frozenset[str]:
    """The names of what torch's classes that a script derives from or uses have."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler, TensorDataset

    holders: tuple[object, ...] = (
        *(torch, torch.nn, torch.nn.Module(), torch.distributed, torch.Tensor, torch.optim, torch.utils.data),
        *(DistributedDataParallel, DataLoader, Dataset, DistributedSampler, Sampler, TensorDataset),
        *(
            torch.optim.Optimizer,
            torch.optim.lr_scheduler.LRScheduler,
            torch.nn.Linear(1, 1),
            str,
            dict,
            list,
        ),
    )
    return frozenset(name for holder in holders for name in dir(holder))


class _Names(cst.CSTVisitor):
    """What a script defines, and what has to keep its name."""

    def __init__(self) -> None:
        self._kept: set[str] = set(_ALWAYS_KEPT)
        self._imported: set[str] = set()
        self._asked: list[tuple[str, str]] = []
        """The attributes of variables, each with the variable."""
        self._variables: dict[str, None] = {}
        self._attributes: dict[str, None] = {}
        self._classes: list[bool] = [False]
        """Whether each open scope is the body of a class."""

    def variables_to_rename(self) -> Iterator[str]:
        """Names of variables, functions, classes and parameters, in their order."""
        kept = self._kept | self._imported
        return (name for name in self._variables if name not in kept and not name.startswith("__"))

    def attributes_to_rename(self) -> Iterator[str]:
        """Names of attributes and methods, in their order."""
        of_modules = {attribute for owner, attribute in self._asked if owner in self._imported}
        taken = self._kept | self._imported | of_modules | _known_attributes()
        return (name for name in self._attributes if name not in taken and not name.startswith("__"))

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._variables[node.name.value] = None
        self._classes.append(True)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._classes.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        (self._attributes if self._classes[-1] else self._variables)[node.name.value] = None
        self._classes.append(False)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._classes.pop()

    def visit_Param(self, node: cst.Param) -> None:
        self._variables[node.name.value] = None

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._assigned(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._assigned(node.target)

    def visit_For(self, node: cst.For) -> None:
        self._assigned(node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._assigned(node.target)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._assigned(node.target)

    def visit_AsName(self, node: cst.AsName) -> None:
        if isinstance(node.name, cst.BaseExpression):
            self._assigned(node.name)

    def _assigned(self, target: cst.BaseExpression) -> None:
        if isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                self._assigned(element.value)
        elif isinstance(target, cst.Name):
            if self._classes[-1]:  # a field, which may be a keyword of the constructor
                self._kept.add(target.value)
            self._variables[target.value] = None
        elif isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name):
            if target.value.value == "self":
                self._attributes[target.attr.value] = None
            else:
                self._kept.add(target.attr.value)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if isinstance(node.value, cst.Name):
            self._asked.append((node.value.value, node.attr.value))

    def visit_ImportAlias(self, node: cst.ImportAlias) -> bool:
        name = node.asname.name if node.asname else node.name
        while isinstance(name, cst.Attribute):
            name = name.value
        self._imported.add(ensure_type(name, cst.Name).value)
        return False

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self._kept.add(node.keyword.value)

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        text = str(node.evaluated_value)
        if not re.search(r"\s", text):  # prose names nothing
            self._kept.update(_WORD.findall(text.replace("-", "_")))


class _Renamed(cst.CSTTransformer):
    def __init__(self, variables: Mapping[str, str], attributes: Mapping[str, str]) -> None:
        self._variables, self._attributes = variables, attributes
        self._classes: list[bool] = [False]

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._classes.append(True)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._classes.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._classes.append(False)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._classes.pop()
        if not self._classes[-1]:
            return updated_node
        name = original_node.name.value
        return updated_node.with_changes(name=cst.Name(self._attributes.get(name, name)))

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        name = original_node.attr.value
        return updated_node.with_changes(attr=cst.Name(self._attributes.get(name, name)))

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=self._variables.get(updated_node.value, updated_node.value))

"""Names of parameters that mean the same on every rank."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

_DEEPEST = 50
_COMPILED = "_orig_mod."


class Keys:
    """Each parameter's key; parameters are held weakly."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: dict[int, tuple[weakref.ref[Any], str, bool]] = {}

    def add(self, parameter: Any, key: str, *, wrapped: bool) -> None:
        self._known[id(parameter)] = weakref.ref(parameter), key, wrapped

    def get(self, parameter: Any) -> str | None:
        """Its key, where it has one."""
        known = self._known.get(id(parameter))
        return known[1] if known and known[0]() is parameter else None

    def is_wrapped(self, parameter: Any) -> bool:
        """Whether a wrapper knows it."""
        known = self._known.get(id(parameter))
        return bool(known and known[2] and known[0]() is parameter)

    def of_groups(self, groups: Sequence[Sequence[Any]]) -> list[str]:
        """The keys of an optimizer's parameters, group by group; those that have none get one."""
        if unknown := [p for group in groups for p in group if self.get(p) is None]:
            self._name(groups, unknown)
        return [self.get(p) or "" for group in groups for p in group]

    def _name(self, groups: Sequence[Sequence[Any]], unknown: list[Any]) -> None:
        holders = _Holders(self._torch, unknown)
        used: Counter[str] = Counter()
        for number, group in enumerate(groups):
            for position, parameter in enumerate(group):
                if self.get(parameter) is None:
                    key = holders.name(parameter) or f"group {number} parameter {position}"
                    used[key] += 1
                    self.add(parameter, key if used[key] == 1 else f"{key} ({used[key]})", wrapped=False)


class _Holders:
    """The modules of this process, looked through once for those that hold some parameters."""

    def __init__(self, torch: Any, parameters: list[Any]) -> None:
        wanted = {id(parameter) for parameter in parameters}
        self._own: dict[int, tuple[Any, str]] = {}
        self._parents: dict[int, tuple[Any, str]] = {}
        for module in _modules(torch):
            for name, parameter in _parts(module, "_parameters"):
                if id(parameter) in wanted:
                    self._own.setdefault(id(parameter), (module, name))
            for name, child in _parts(module, "_modules"):
                self._prefer(child, module, name)

    def _prefer(self, child: Any, module: Any, name: str) -> None:
        """Of several parents take one by name, not by where they happen to lie in memory."""
        known = self._parents.get(id(child))
        if known is None or (type(module).__name__, name) < (type(known[0]).__name__, known[1]):
            self._parents[id(child)] = module, name

    def name(self, parameter: Any) -> str | None:
        """``Class.path.name`` by the outermost module that contains it; None where no module does."""
        if id(parameter) not in self._own:
            return None
        module, name = self._own[id(parameter)]
        for _ in range(_DEEPEST):
            if id(module) not in self._parents:
                break
            module, above = self._parents[id(module)]
            name = f"{above}.{name}"
        return f"{type(module).__name__}.{name}"


def _modules(torch: Any) -> Iterator[Any]:
    """All modules but those that only stand for another one."""
    base = torch.nn.Module
    for candidate in gc.get_objects():
        # Not isinstance: that asks objects for their __class__, which may be the user's code.
        kind = type(candidate)
        if issubclass(kind, base) and kind.__name__ not in ("OptimizedModule", "DistributedDataParallel"):
            yield candidate


def _parts(module: Any, kind: str) -> list[tuple[str, Any]]:
    return [(name, part) for name, part in vars(module).get(kind, {}).items() if part is not None]


def names_inside(module: Any) -> Iterator[tuple[str, Any]]:
    """A module's parameters with their names, torch.compile's own part of them left out."""
    for name, parameter in module.named_parameters():
        yield name.replace(_COMPILED, ""), parameter


def modules_inside(module: Any) -> list[Any]:
    """A module and those in it, each once; as ``modules()`` finds them, in a third of its time."""
    modules, known = [module], {id(module)}
    for holder in modules:  # which grows meanwhile
        for part in holder._modules.values():
            if part is not None and id(part) not in known:
                known.add(id(part))
                modules.append(part)
    return modules

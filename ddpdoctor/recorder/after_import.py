"""Calls back when a module was imported, without importing it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Callback = Callable[[], object]


class _Finder:
    """Finds the modules that are waited for as everybody else would, and adds a call after their code has run."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self._finding: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.waiting or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None:
            self._call_after(name, spec.loader)
        return spec

    def _call_after(self, name: str, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader goes back to what it was: scripts may look at torch.__spec__.
            del loader.exec_module
            original(module)
            for callback in self.waiting.pop(name, []):
                _call(callback)

        loader.exec_module = exec_module


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call back once the module's code has run; at once where it has."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _call(callback)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001 - the user's import succeeded; what is ours must not make it fail
        from .patch import report

        report("import")

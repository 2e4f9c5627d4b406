"""Calls back when a module was imported, or around the run of its code, without importing it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Callback = Callable[[], object]
_OF_FILES = (importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader)


class _Finder:
    """Finds modules as everybody else would, and does something around the run of their code."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self.is_wanted: Callable[[], bool] = bool
        """Whether ``around`` wants to know of an import in this thread."""
        self.around: Callable[[str], Callback | None] = _nothing
        """Called with the file of a module that is about to run; what it returns is called after."""
        self._finding: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in self._finding:
            return None
        if name not in self.waiting and (name in sys.modules or not self.is_wanted()):
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and (name in self.waiting or isinstance(spec.loader, _OF_FILES)):
            self._call_around(name, spec.origin or "", spec.loader)
        return spec

    def _call_around(self, name: str, file: str, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader goes back to what it was: scripts may look at torch.__spec__.
            del loader.exec_module
            after = self.around(file)
            try:
                original(module)
            except BaseException as error:
                from .patch import leave_out

                leave_out(error)
                raise
            finally:
                if after is not None:
                    after()
            for callback in self.waiting.pop(name, []):
                _call(callback)

        loader.exec_module = exec_module


def _nothing(_: str) -> None:
    """Around the run of a module."""


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call back once the module's code has run; at once where it has."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _call(callback)
        return
    _look_on()
    _finder.waiting.setdefault(name, []).append(callback)


def around_imports(is_wanted: Callable[[], bool], around: Callable[[str], Callback | None]) -> None:
    """Call around the run of each module of a file, where that is wanted, with the file; then what that returned."""
    _look_on()
    _finder.is_wanted, _finder.around = is_wanted, around


def _look_on() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001 - the user's import succeeded; what is ours must not make it fail
        from .patch import report

        report("import")

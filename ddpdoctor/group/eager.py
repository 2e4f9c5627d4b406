"""Keeps torch's compiler out of ranks that never compile.

The constructor of DistributedDataParallel and the optimizers ask ``torch._dynamo`` small questions ("which mode
is set?", "break the graph here"), and the first question imports the compiler: 0.8 s, a third of a whole check.
For our own ranks, which live for half a second and run eagerly, a stand-in answers. Anything else that is asked
of it brings the real module in. The bundled trainer under torchrun runs with the real one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

COMPILER = "torch._dynamo"


class _StandIn(ModuleType):
    """Answers as the compiler does where nothing is compiled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_bring_in_the_real_one(), name)


def without_compiler() -> None:
    """Put the stand-in into place, unless the compiler is there already."""
    spec = importlib.util.find_spec(COMPILER)
    if COMPILER in sys.modules or spec is None:
        return
    stand_in = _StandIn(COMPILER)
    stand_in.__path__ = list(spec.submodule_search_locations or ())
    stand_in.__spec__ = spec
    answers = {
        "disable": lambda fn=None, *args, **options: fn,
        "graph_break": lambda *args, **options: None,
        "utils": SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer"),
    }
    vars(stand_in).update(answers)
    sys.modules[COMPILER] = stand_in


def _bring_in_the_real_one() -> ModuleType:
    """Import the compiler in the stand-in's place."""
    import torch

    sys.modules.pop(COMPILER, None)
    vars(torch).pop("_dynamo", None)
    return importlib.import_module(COMPILER)

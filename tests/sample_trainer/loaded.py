"""The trainer's modules, with nothing run: they import each other by their short names, as they do when run by path."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

TRAINER = Path(__file__).parents[2] / "sample_trainer"
SCRIPTS = Path(__file__).parent / "scripts"


def module(name: str) -> ModuleType:
    """One of sample_trainer."""
    sys.path.insert(0, str(TRAINER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TRAINER))

"""The trainer's modules, which are found by path as they are when it is run."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[2] / "sample_trainer"


def module(name: str) -> Any:
    """One of the trainer's own modules, with nothing run."""
    sys.path.insert(0, str(FOLDER))
    try:
        found: ModuleType = importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
    return found

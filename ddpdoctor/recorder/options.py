"""What is asked of the recorder, by environment variables that every process of the job inherits.

The command encodes it and the recorder decodes it, both by this file, which therefore imports nothing of ddpdoctor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

_PREFIX = "DDPDOCTOR_"
FOLDER = f"{_PREFIX}RECORD"
"""The variable that names the folder of records; the recorder does nothing without it."""


@dataclass(frozen=True)
class RecorderOptions:
    """Each travels as DDPDOCTOR_ and the field's name in capitals."""

    batches: int = 0
    """Batches after which each pass over a DataLoader is cut short; 0 where the budget of time says when."""
    budget: float = 30.0
    """Seconds of training within which a script runs whole. The passes of a longer one share them."""
    full: bool = False
    """Whether nothing is cut short."""
    time_limit: float = 0.0
    """Seconds of training after which a run is ended at a training step, in place of those that the budget gives."""
    rehearse: bool = False
    """Whether GPUs and NCCL are simulated on the CPU."""
    world_size: int = 0
    """Ranks of the job that the script is to see, of which only some are processes; 0 where all are."""
    ranks: str = ""
    """Those that are processes, with commas between them, where ``world_size`` is given."""
    nproc: int = 0
    """Ranks on this host; 0 where only they themselves know."""
    record: str = ""
    """The folder of records."""
    watched: bool = False
    """Whether the run may take days, in which all of the recorder is to take no more than a hundredth of the time."""

    def to_environment(self) -> dict[str, str]:
        """The variables that carry these options, also those that have their default: one run may start another."""
        plain = {name: int(value) if isinstance(value, bool) else value for name, value in vars(self).items()}
        return {f"{_PREFIX}{name.upper()}": str(value) for name, value in plain.items()}

    @classmethod
    def of_environment(cls) -> RecorderOptions:
        """The options as they stand in the environment; what is absent or empty has its default."""
        given: dict[str, Any] = {}
        for field in fields(cls):
            if text := os.environ.get(f"{_PREFIX}{field.name.upper()}"):
                given[field.name] = _KINDS[str(field.type)](text)
        return cls(**given)


_KINDS: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: bool(int(text)),
    "int": int,
    "float": float,
    "str": str,
}

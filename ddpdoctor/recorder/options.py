"""What the command asked of the recorder, by environment variables that every process of the run inherits."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Each is named DDPDOCTOR_ and the field in capitals."""

    batches: int = 8
    """Batches that fast-forward gives to a pass over a DataLoader."""
    full: bool = False
    """Whether the run goes at its full length."""
    time_limit: float = 120.0
    """Seconds after which a run that is cut short is ended at a training step."""
    rehearse: int = 0
    """Imaginary hosts of a rehearsal; 0 where devices are real."""
    exact: str = ""
    """``keep``: what the first update needs; or the folder of records where that was kept, to replay it."""
    nproc: int = 0
    """Ranks on this host, where the command knows; 0 where it does not."""

    @classmethod
    def of_environment(cls) -> Options:
        """The options as they stand in the environment; what is absent has its default."""
        asked = {name: os.environ.get(f"DDPDOCTOR_{name.upper()}") for name in cls.__dataclass_fields__}
        kinds = {"time_limit": float, "exact": str}
        given = {name: kinds.get(name, int)(text) for name, text in asked.items() if text}
        return cls(**given)

"""The gradient of one process beside that of the ranks, where --exact asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpdoctor.model import Evidence, Where

TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}
"""Relative error up to which two gradients are the same, computed in another order; by the coarsest dtype used."""


@dataclass(frozen=True)
class Exact:
    """The gradient of the first update, from all ranks together and from one process on the same batches."""

    refused: str | None = None
    """Why the two cannot be compared, in a clause about the script; everything else is empty then."""
    scale: float = 1.0
    """The factor by which the ranks' gradient is longer, along the other."""
    error: float = 0.0
    """The norm of the difference, relative to the gradient of one process."""
    cosine: float = 1.0
    parameters: int = 0
    batches: int = 0
    """Micro-batches of the update, on each rank."""
    worst: str = ""
    """The parameter whose gradients differ most."""
    dtypes: tuple[str, ...] = ("float32",)

    @property
    def agrees(self) -> bool:
        """Whether the two are the same but for rounding."""
        return self.refused is None and self.error <= max(TOLERANCE.get(one, 1e-3) for one in self.dtypes)


def proof(exact: Exact | None) -> tuple[Evidence, ...]:
    """What the comparison adds to a finding about wrong gradients; nothing where there is none."""
    return () if exact is None or exact.refused else (Evidence(f"proven: {in_words(exact)}"),)


def in_words(exact: Exact) -> str:
    """The comparison, in a clause."""
    return (
        f"the gradient of the first update is {exact.scale:.3g} times that of one process on the same samples, with a "
        f"relative error of {exact.error:.2g} and a cosine of {exact.cosine:.4f}"
    )


class ExactReader:
    """Reads what the recorder compared."""

    def __init__(self, file: Path) -> None:
        self._exact: Exact | None = None

    def on_exact_refused(self, event: dict[str, Any], at: Where | None) -> None:
        """The two runs cannot be compared."""
        self._exact = Exact(refused=event["why"])

    def on_exact_compared(self, event: dict[str, Any], at: Where | None) -> None:
        """Both gradients were there."""
        names = ("scale", "error", "cosine", "parameters", "batches", "worst")
        self._exact = Exact(dtypes=tuple(event["dtypes"]), **{name: event[name] for name in names})

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording."""
        return {"exact": self._exact}

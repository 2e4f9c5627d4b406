"""The gradient of one process beside that of the ranks, where --exact asked for it."""

from __future__ import annotations

from ddpdoctor.model import Evidence
from ddpdoctor.recorder.events.updates import Exact


def proof(exact: Exact | None) -> tuple[Evidence, ...]:
    """What the comparison adds to a finding about wrong gradients; nothing where there is none."""
    return () if exact is None or exact.refused else (Evidence(f"proven: {in_words(exact)}"),)


def in_words(exact: Exact) -> str:
    """The comparison, in a clause."""
    return (
        f"the gradient of the first update is {exact.scale:.3g} times that of one process on the same samples, with a "
        f"relative error of {exact.error:.2g} and a cosine of {exact.cosine:.4f}"
    )

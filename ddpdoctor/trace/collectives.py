"""Reads one collective from a record."""

from __future__ import annotations

from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.trace.digests import number
from ddpdoctor.trace.training import Collective


def collective(event: dict[str, Any], at: Where | None) -> Collective:
    """A collective that the script issued."""
    return Collective(
        event["t"] - event["s"],
        at,
        event["op"],
        None if event["group"] is None else tuple(event["group"]),
        tuple(event["shape"]) if "shape" in event else None,
        event.get("dtype"),
        event.get("reduce"),
        event.get("gradient_of"),
        event.get("requires_grad", False),
        event.get("differentiable", False),
        event["s"],
        event.get("peer"),
        number(event.get("norm")),
        event.get("weight_of"),
        event["n"],
    )

"""Digests and numbers of a record as the checks read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def digest(value: Any) -> str | None:
    """A digest as the checks compare it; None where none was taken."""
    return f"{value:x}" if isinstance(value, int) and not isinstance(value, bool) else None


def named(keys: Sequence[str], values: Sequence[Any]) -> dict[str, str]:
    """Digests by key; those that could not be taken are left out."""
    taken = ((key, digest(value)) for key, value in zip(keys, values, strict=False))
    return {key: own for key, own in taken if own is not None}


def gradients(keys: Sequence[str], values: Sequence[Any] | None) -> dict[str, str | None] | None:
    """As :func:`named`, with None for a parameter that had no gradient."""
    if values is None:
        return None
    absent = {key: None for key, value in zip(keys, values, strict=False) if value is None}
    return {**named(keys, values), **absent}


def number(value: Any) -> float | None:
    """A number that was written down; None for anything else."""
    return float(value) if isinstance(value, int | float) else None

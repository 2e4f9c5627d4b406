"""Checkpoints activations without reentrant backwards."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls


def apply(case: Case) -> str:
    """``use_reentrant=False`` for each checkpoint."""
    source = case.source
    made = calls(source, "checkpoint", "checkpoint_sequential")
    for call in made:
        given = argument(call, "use_reentrant")
        if given is None:
            source.add_argument(call, "use_reentrant=False")
        else:
            source.replace(given.value, "False")
    if not made:
        raise CannotPatch("no activations are checkpointed in this file")
    return "use_reentrant=False"

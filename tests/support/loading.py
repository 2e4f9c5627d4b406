"""What ranks loaded, as plain data: passes with the samples that each rank draws."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddpdoctor.recorder.events.data import Loader, Sampler
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.recording import Recording
from tests.support.recordings import replace, where

RANDOM = Sampler("RandomSampler", shuffle=True)


def drawing(
    one: Recording,
    *orders: Sequence[int],
    sampler: Sampler | None = None,
    loader: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Recording:
    """The recording with training passes that draw these samples, one pass for each order."""
    own = sampler or one.loaders[0].sampler
    made = replace(one.loaders[0], sampler=own, **(loader or {}))
    batches = -(-len(orders[0]) // (made.batch_size or 1)) if orders else 0
    passes = tuple(
        Pass(
            0,
            number,
            where(45),
            number * 2 + 0.1,
            number * 2 + 1.9,
            own,
            tuple(order),
            batches,
            batches,
            "exhausted",
            training=True,
        )
        for number, order in enumerate(orders)
    )
    return replace(one, loaders=(made,), passes=tuple(replace(own, **fields) for own in passes))


def evaluating(
    one: Recording,
    order: Sequence[int] | None,
    begin: float = 10.0,
    sampler: Sampler | None = None,
    **fields: Any,
) -> Recording:
    """The recording with a further loader and one evaluation pass over it, after training."""
    loader = Loader(7, where(60), "HeldOut", 16, batch_size=4, sampler=sampler)
    own = Pass(
        7, 0, where(62), begin, begin + 1, sampler, order, 2, 2, "exhausted", evaluation=True, **fields
    )
    return replace(one, loaders=(*one.loaders, loader), passes=(*one.passes, own))

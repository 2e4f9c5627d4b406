"""Which seed ranks have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddpdoctor.recorder.patches.seeds import Seeded
from ddpdoctor.trace.recording import Recording


def shared_seed(recordings: Mapping[int, Recording], streams: Iterable[str], before: float) -> Seeded | None:
    """The last call that seeded one of these streams before this time, the same on every rank; the first's.

    Args:
        streams: ``torch``, ``numpy`` or ``python``, the likeliest first.
    """
    for stream in streams:
        seeds = [_last(recording, stream, before) for recording in recordings.values()]
        first = seeds[0]
        if first and first.at and all(seed is not None and seed.value == first.value for seed in seeds):
            return first
    return None


def _last(recording: Recording, stream: str, before: float) -> Seeded | None:
    seeds = reversed(recording.events(Seeded))
    return next((seed for seed in seeds if seed.stream == stream and seed.time <= before), None)

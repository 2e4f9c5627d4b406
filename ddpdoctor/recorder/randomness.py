"""Fingerprints of the global random streams."""

from __future__ import annotations

import random
import sys
import zlib
from typing import Any

from . import fingerprint


def states(torch: Any) -> dict[str, str]:
    """Where each stream stands; numpy's only where the script uses numpy."""
    streams = {
        "torch": fingerprint.of(torch.get_rng_state(), torch) or "",
        "python": f"{zlib.crc32(repr(random.getstate()).encode()):08x}",
    }
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        state = numpy.get_state(legacy=True)
        streams["numpy"] = f"{zlib.crc32(state[1].tobytes() + repr(state[2:]).encode()):08x}"
    return streams

"""Small values between ranks without a collective, through the store that the rendezvous left behind."""

from __future__ import annotations

import json
from typing import Any

from torch.distributed.distributed_c10d import _get_default_store

_PREFIX = "ddpdoctor"


def publish(key: str, value: Any) -> None:
    """Leave a value that JSON can hold for the other ranks; it is there when this returns."""
    _get_default_store().set(f"{_PREFIX}/{key}", json.dumps(value))
    is_published(key)  # set() does not wait for the store, and the answer to a question comes after it


def read(key: str) -> Any:
    """What another rank published, waiting until it has."""
    return json.loads(_get_default_store().get(f"{_PREFIX}/{key}"))


def is_published(key: str) -> bool:
    """Whether another rank has published it."""
    return bool(_get_default_store().check([f"{_PREFIX}/{key}"]))

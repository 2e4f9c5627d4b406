"""What keeps Python from doing work for nothing where very many objects are alive."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for objects that only refer to each other.

    A million events of ten thousand ranks stay until the report is written, and none of them is one: the searches among
    them take a third of the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

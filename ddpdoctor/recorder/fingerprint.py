"""Fingerprints of samples and batches: equal where the values are equal, cheap, and never a look at a GPU."""

from __future__ import annotations

import ctypes
import zlib
from collections import UserDict
from collections.abc import Iterable
from itertools import islice
from typing import Any

_WHOLE = 1 << 20
"""Bytes of one value that are read in full; of a longer one, as many in pieces spread over it."""
_WHOLE_ROW = 1 << 14
"""The same of one sample."""
_PIECES = 16
_MOST_ELEMENTS = 16
"""Elements of a tuple, list or mapping that are looked at."""
_DEEPEST = 4


def of(value: Any, torch: Any, limit: int = _WHOLE) -> str | None:
    """The fingerprint of a sample or a batch; None where it holds nothing that can be read cheaply."""
    fingerprint = _Fingerprint(torch, limit)
    fingerprint.add(value, 0)
    return f"{fingerprint.crc:08x}" if fingerprint.parts else None


def rows(batch: Any, torch: Any, most: int) -> list[str | None]:
    """The fingerprints of the first rows of a batch's first tensor: its samples, where they were stacked."""
    first = _first_tensor(batch, torch, 0)
    if first is None or first.dim() == 0 or first.device.type != "cpu":
        return []
    return [of(row, torch, _WHOLE_ROW) for row in first.detach()[:most]]


def length(batch: Any, torch: Any) -> int | None:
    """The first dimension of a batch's first tensor; None where it has none."""
    first = _first_tensor(batch, torch, 0)
    return None if first is None or first.dim() == 0 else int(first.shape[0])


def _first_tensor(value: Any, torch: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    inner = _elements(value) if depth < _DEEPEST else ()
    tensors = (_first_tensor(element, torch, depth + 1) for element in inner)
    return next((tensor for tensor in tensors if tensor is not None), None)


def _elements(value: Any) -> Iterable[Any]:
    """The first elements of a container, without its own methods, which may be the script's."""
    if isinstance(value, UserDict):
        value = vars(value).get("data")
    if isinstance(value, dict):
        return islice(dict.values(value), _MOST_ELEMENTS)
    kind = next((kind for kind in (list, tuple) if isinstance(value, kind)), None)
    return kind.__getitem__(value, slice(_MOST_ELEMENTS)) if kind else ()


class _Fingerprint:
    def __init__(self, torch: Any, limit: int) -> None:
        self.torch, self.limit = torch, limit
        self.crc = self.parts = 0

    def add(self, value: Any, depth: int) -> None:
        if isinstance(value, self.torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, str | bytes | bool | int | float):
            text = value if isinstance(value, bytes) else repr(value).encode(errors="surrogatepass")
            self._add_bytes(memoryview(text))
        elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            self._add_array(value)
        elif depth < _DEEPEST:
            for element in _elements(value):
                self.add(element, depth + 1)

    def _add_tensor(self, tensor: Any) -> None:
        tensor = tensor.detach()
        readable = tensor.device.type == "cpu" and tensor.layout is self.torch.strided
        if not readable or not tensor.numel() or tensor.is_conj() or tensor.is_neg():
            return
        if not tensor.is_contiguous():
            row = tensor[:1].numel() * tensor.element_size()
            tensor = tensor[: max(1, self.limit // row)].contiguous()
        address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        if address:
            self._add_bytes(memoryview((ctypes.c_char * size).from_address(address)).cast("B"))

    def _add_array(self, array: Any) -> None:
        if array.nbytes > self.limit:
            array = array.reshape(-1)[:: array.nbytes // self.limit + 1]
        self._add_bytes(memoryview(array.tobytes()))

    def _add_bytes(self, data: memoryview) -> None:
        self.parts += 1
        self.crc = zlib.crc32(len(data).to_bytes(8, "little"), self.crc)
        if len(data) <= self.limit:
            self.crc = zlib.crc32(data, self.crc)
            return
        piece, stride = self.limit // _PIECES, len(data) // _PIECES
        for begin in range(0, stride * _PIECES, stride):
            self.crc = zlib.crc32(data[begin : begin + piece], self.crc)

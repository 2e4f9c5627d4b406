"""Digests of tensors, samples and batches: equal where the bits are, different where the order of the values is.

On the CPU a checksum of the memory as it lies; elsewhere integer arithmetic on the device, with one
synchronisation for all tensors. No random number is drawn and nothing is seen by autograd or by torch's modes.
"""

import ctypes
import zlib
from collections import UserDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

Digest = int | Literal[False] | None
"""None where there is no tensor, False where it cannot be told."""
_CHUNK = 1 << 20
"""Values that are folded at once, so that little memory of the device is needed."""
_ODD = 0x2545F4914F6CDD1D
_STEP = 0x1B873593
_UNSIGNED = (1 << 64) - 1
_SAMPLES = 64
"""Pieces of a long tensor that a sample looks at."""
_VALUES = 16
"""Of a tensor, where a few are taken."""


_WHOLE = 1 << 20
"""Bytes of one value that are read in full; of a longer one, as many in pieces spread over it."""
_WHOLE_ROW = 1 << 14
"""The same of one sample."""
_PIECES = 16
_MOST_ELEMENTS = 16
"""Elements of a tuple, list or mapping that are looked at."""
_DEEPEST = 4


class unseen:  # noqa: N801 - a context manager that is written like a function of contextlib
    """Compute beside the user's program: no autograd, no torch function or dispatch mode sees it."""

    # A class and not a generator: it stands in training steps many times, and takes half as long.
    __slots__ = ("_dispatch", "_function", "_grad", "_torch")

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __enter__(self) -> None:
        torch = self._torch
        self._function, self._dispatch = torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch()
        self._function.__enter__()
        self._dispatch.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        self._torch._C._set_grad_enabled(self._grad)
        self._dispatch.__exit__(*error)
        self._function.__exit__(*error)


def digests(torch: Any, tensors: Sequence[Any]) -> list[Digest]:
    values: list[Digest] = []
    folded: dict[int, Any] = {}
    with unseen(torch):
        for position, tensor in enumerate(tensors):
            digest = None if tensor is None else _of_tensor(torch, tensor)
            if digest is not None and not isinstance(digest, int):
                folded[position] = digest
            values.append(digest if digest is None or isinstance(digest, int) else False)
        for position, number in zip(folded, _read(torch, list(folded.values())), strict=True):
            values[position] = number
    return values


def sample(torch: Any, tensor: Any, most: int = 1 << 20) -> Digest:
    """The digest of a tensor of any size; of one with more bytes than ``most``, of evenly spaced pieces of it."""
    size = tensor.numel() * tensor.element_size()
    if (
        size <= most
        or tensor.device.type != "cpu"
        or not is_plain(torch, tensor)
        or not tensor.is_contiguous()
    ):
        return digests(torch, [tensor])[0]
    piece, address = most // _SAMPLES, _address(torch, tensor)
    value: int = size
    for number in range(_SAMPLES):
        start = (size - piece) * number // (_SAMPLES - 1)
        value = zlib.crc32((ctypes.c_char * piece).from_address(address + start), value)
    return value


def text(digest: Digest) -> str | None:
    """A digest as it is written down; None where there is none, or it cannot be told."""
    return None if digest is None or digest is False else f"{digest:x}"


def named(keys: Iterable[str], values: Iterable[Digest]) -> dict[str, Any]:
    """Digests by key, None of what has no tensor; what cannot be told is left out."""
    return {key: text(value) for key, value in zip(keys, values, strict=False) if value is not False}


def few(tensor: Any) -> tuple[float, ...]:
    """Some values of a tensor, evenly spaced: to compare by size, where bits may rightly differ."""
    flat = tensor.detach().reshape(-1)
    return tuple(flat[:: max(1, flat.numel() // _VALUES)][:_VALUES].double().tolist())


def _of_tensor(torch: Any, tensor: Any) -> Any:
    """An integer from the CPU, a tensor of one integer from elsewhere, False from what holds no values here."""
    try:
        if tensor.layout is torch.sparse_coo:
            return _of_sparse(torch, tensor)
        if not is_plain(torch, tensor):
            return False
        if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
            tensor = tensor.resolve_conj().resolve_neg().contiguous()
        return _checksum(torch, tensor) if tensor.device.type == "cpu" else _fold(torch, tensor)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return False


def is_plain(torch: Any, tensor: Any) -> bool:
    """Whether its values can be read: it is neither meta, nor a subclass that only stands for others, nor captured."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not (tensor.device.type == "cuda" and is_captured(torch))
    )


def is_captured(torch: Any) -> bool:
    """Whether CUDA puts what is called now into a graph, which ends with an error where a value is read meanwhile."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _of_sparse(torch: Any, tensor: Any) -> Any:
    if tensor.device.type != "cpu":
        return False
    whole = tensor.coalesce()
    first, second = (_checksum(torch, part.contiguous()) for part in (whole.indices(), whole.values()))
    return zlib.crc32(first.to_bytes(4, "little"), second)


def _checksum(torch: Any, tensor: Any) -> int:
    if not (size := tensor.numel() * tensor.element_size()):
        return 0
    return zlib.crc32((ctypes.c_char * size).from_address(_address(torch, tensor)))


def _address(torch: Any, tensor: Any) -> int:
    # data_ptr() would give a lazy copy memory of its own; _data_address is where the storage begins.
    if (read := getattr(torch._C, "_data_address", None)) is None:
        return int(tensor.data_ptr())
    return int(read(tensor) + tensor.storage_offset() * tensor.element_size())


def _fold(torch: Any, tensor: Any) -> Any:
    """A sum of the values as integers, each times an odd number of its position."""
    if not tensor.numel():
        return 0
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.reshape(-1)
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    words = flat.view(sizes[flat.element_size()])
    weights = torch.arange(min(_CHUNK, words.numel()), dtype=torch.int64, device=words.device)
    weights.mul_(2 * _STEP).add_(_ODD)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, words.numel(), _CHUNK):
        chunk = words[start : start + _CHUNK].to(torch.int64)
        total.mul_(_ODD).add_((chunk * weights[: chunk.numel()]).sum())
    return total


def _read(torch: Any, values: list[Any]) -> list[int]:
    """Integers that lie on devices, with one synchronisation for each device."""
    integers: dict[int, int] = {}
    for device in {value.device for value in values}:
        here = [position for position, value in enumerate(values) if value.device == device]
        read: Iterable[int] = torch.stack([values[position] for position in here]).tolist()
        integers.update(zip(here, (value & _UNSIGNED for value in read), strict=True))
    return [integers[position] for position in range(len(values))]


def fingerprint(value: Any, torch: Any, limit: int = _WHOLE) -> str | None:
    """The fingerprint of a sample or a batch; None where it holds nothing that can be read cheaply."""
    made = _Fingerprint(torch, limit)
    made.add(value, 0)
    return f"{made.crc:08x}" if made.parts else None


def fingerprints_of_rows(batch: Any, torch: Any, most: int) -> list[str | None]:
    """The fingerprints of the first rows of a batch's first tensor: its samples, where they were stacked."""
    if (first := _first_tensor(batch, torch, 0)) is None or first.dim() == 0 or first.device.type != "cpu":
        return []
    return [fingerprint(row, torch, _WHOLE_ROW) for row in first.detach()[:most]]


def length_of(batch: Any, torch: Any) -> int | None:
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

"""Bytes from rank to rank, what rank 0 does for all, and whether all have the same.

As tensors of bytes: torch's own functions for objects need NumPy, and unpickle whatever they are sent.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from checkpoint_files import CheckpointError
from components import checksum, leaves
from config import TrainerError
from torch import Tensor

PIECE = 64 << 20  # bytes that are sent at once: on NCCL they pass through the memory of the GPU


def on_rank_0(act: Callable[[], bytes | None], failure: str) -> bytes:
    """Do it on rank 0 while the others wait; what it gave, on every rank.

    Raises:
        CheckpointError: on every rank, where it failed.
    """
    answer = b""
    if dist.get_rank() == 0:
        try:
            answer = b"+" + (act() or b"")
        except TrainerError as error:
            answer = f"-{error}".encode()
        except OSError as error:
            answer = f"-{failure}: {error.strerror or error}".encode()
    answer = broadcast(answer)
    if answer[:1] == b"-":
        raise CheckpointError(answer[1:].decode())
    return answer[1:]


def broadcast(content: bytes, source: int = 0) -> bytes:
    """One rank's bytes, rank 0's unless told otherwise."""
    size = torch.tensor([len(content)], device=_device())
    dist.broadcast(size, src=source)
    pieces = []
    for start in range(0, int(size), PIECE):
        piece = torch.empty(min(PIECE, int(size) - start), dtype=torch.uint8, device=_device())
        if dist.get_rank() == source:
            piece = to_tensor(content[start : start + PIECE])
        dist.broadcast(piece, src=source)
        pieces.append(_memory(piece.cpu()))
    return b"".join(pieces)


def gather(content: bytes) -> list[bytes]:
    """Every rank's bytes, on rank 0; nothing elsewhere."""
    size = torch.tensor([len(content)], device=_device())
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    most = max(map(int, sizes))
    padded = to_tensor(content.ljust(most, b"\0"))
    every = [torch.empty_like(padded) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(padded, every, dst=0)
    return [_memory(received.cpu())[: int(n)] for received, n in zip(every or (), sizes, strict=False)]


def verify_equal(states: Mapping[str, Any]) -> None:
    """Compare this rank's states with rank 0's to the bit, by digests: 32 bytes are sent, whatever their size.

    Raises:
        CheckpointError: on every rank, where one differs; it names the first difference.
    """
    mine = to_tensor(bytes.fromhex(checksum(states)))
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    if all(torch.equal(every[0], digest) for digest in every):
        return
    digests = {name: checksum(leaf) for name, leaf in leaves(states)}
    gathered = [json.loads(digest) for digest in gather(json.dumps(digests).encode())]
    on_rank_0(partial(_tell_difference, gathered), "the replicas cannot be compared")


def _tell_difference(gathered: Sequence[Mapping[str, str]]) -> None:
    """Raise, and say what differs first."""
    for name in gathered[0]:
        if ranks := [rank for rank, digest in enumerate(gathered) if digest.get(name) != gathered[0][name]]:
            raise CheckpointError(f"{name} differs between ranks: rank {ranks[0]} differs from rank 0")
    raise CheckpointError("a rank has state that rank 0 does not have")


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def to_tensor(content: bytes) -> Tensor:
    """Bytes, at least one, where the process group can send them."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_device())


def _memory(flat: Tensor) -> bytes:
    return ctypes.string_at(flat.data_ptr(), flat.nbytes)

"""What ranks do together besides DDP: join and leave the group, average, compare, send bytes.

Each function here that communicates has to be called by every rank, in the same order. A call under
``if rank == 0:`` would leave rank 0 waiting for the others, for ever.
"""

from __future__ import annotations

import ctypes
import datetime
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from components import checksum, leaves
from config import Parallel, TrainerError, own_rank
from torch import Tensor, nn

PIECE = 64 << 20  # bytes that are sent at once: on NCCL they pass through the memory of the GPU

# --- Joining and leaving --------------------------------------------------------------------------------------


def launched_rank() -> tuple[int, int, int] | None:
    """Rank, local rank and world size as a launcher's variables say them; None without a launcher."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    printed_by = own_rank()
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise TrainerError(
                f"RANK and WORLD_SIZE are set, and {name}, where ranks meet, is not", printed_by
            )
    try:
        rank, local, size, port = (int(os.environ.get(name, os.environ["RANK"])) for name in names)
    except ValueError:
        raise TrainerError(
            f"one of the launcher's variables {', '.join(names)} is not a number", printed_by
        ) from None
    if not 0 <= rank < size:
        raise TrainerError(f"the launcher's variables say rank {rank} of WORLD_SIZE {size}", printed_by)
    if not 0 <= port < 65536:
        raise TrainerError(f"MASTER_PORT is {port}; it has to be at most 65535", printed_by)
    return rank, local, size


def set_up(parallel: Parallel) -> torch.device:
    """Join the process group, and say which device is this rank's.

    Three ways lead here: torchrun or another launcher that sets env:// variables; ranks that are started by
    hand and meet at tcp://ADDRESS:PORT; and one process by itself, which is a group of one: the same code path.
    """
    launched = launched_rank()
    rank, local, size = launched or _by_hand(parallel)
    port = 29500 if parallel.master_port is None else parallel.master_port
    address = f"tcp://{parallel.master_addr}:{port}"
    alone = not launched and size == 1 and parallel.master_port is None
    device = _device(parallel, rank, local)
    # NCCL moves GPU memory, gloo moves main memory.
    backend = {"cuda": "nccl", "cpu": "gloo"}[device.type] if parallel.backend == "auto" else parallel.backend
    try:
        dist.init_process_group(
            backend,
            # A single process meets nobody, so it takes no port.
            store=dist.HashStore() if alone else None,  # type: ignore[attr-defined]
            init_method=None if alone else "env://" if launched else address,
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=parallel.timeout),
            # Lets NCCL connect at once, on the right GPU, so that what is wrong shows here.
            device_id=device if backend == "nccl" else None,
        )
    except RuntimeError as error:
        known = isinstance(error, dist.DistNetworkError | dist.DistStoreError)
        if not known and "EADDRINUSE" not in str(error):  # which torch 2.4 gives no type of its own
            raise
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}" if launched else address
        raise TrainerError(_why_not_joined(str(error), where, rank), printed_by=rank) from None
    return device


def _by_hand(parallel: Parallel) -> tuple[int, int, int]:
    size = parallel.world_size or 1
    if size > 1 and parallel.rank is None:
        raise TrainerError(
            f"parallel.world_size is {size} and nobody started {size} ranks: use torchrun --nproc-per-node {size} "
            "trainer.py ..., or give each process its parallel.rank"
        )
    rank = parallel.rank or 0
    return rank, rank % max(1, torch.cuda.device_count()), size


def _device(parallel: Parallel, rank: int, local_rank: int) -> torch.device:
    """The GPU of this rank among those that CUDA_VISIBLE_DEVICES leaves visible; or the CPU."""
    usable = torch.cuda.is_available() and parallel.backend != "gloo"
    if parallel.device == "cpu" or (parallel.device == "auto" and not usable):
        if parallel.backend == "nccl":
            raise TrainerError("parallel.backend=nccl needs GPUs, and torch sees none here")
        return torch.device("cpu")
    visible = torch.cuda.device_count()
    if local_rank >= visible:
        raise TrainerError(
            f"rank {rank} needs the GPU {local_rank} of its own, and {visible} are visible",
            printed_by=rank - local_rank + visible,  # the first of this host without one
        )
    # Or every .cuda() of every rank on this host would be GPU 0.
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _why_not_joined(error: str, where: str, rank: int) -> str:
    if "EADDRINUSE" in error or "address already in use" in error.lower():
        return f"rank {rank} cannot listen at {where}: another program has that port; choose another"
    return f"rank {rank} could not connect to the other ranks at {where}: {error.splitlines()[0]}"


def shut_down() -> None:
    """Leave the process group.

    The pause is for gloo: in torch 2.13 a group that is destroyed while its worker thread still lets go of
    the last collective can abort the process (pytorch issue 190489), in up to a third of all runs. Nothing
    is outstanding here that could be waited for: every result has been read.
    """
    if dist.is_initialized():
        time.sleep(0.2)
        dist.destroy_process_group()


# --- Averages -------------------------------------------------------------------------------------------------


def reduce_sums(*values: Tensor | float, device: torch.device | None = None) -> list[float]:
    """Each value summed over all ranks, with one all-reduce for all of them; in double, so that counts are exact."""
    sums = torch.stack([torch.as_tensor(value, device=device).double() for value in values])
    dist.all_reduce(sums)
    return sums.tolist()


def reduce_mean(total: Tensor, count: int) -> float:
    """The mean over all ranks from each rank's sum and count; a mean of means would weigh ranks wrongly."""
    sum_of_all, count_of_all = reduce_sums(total, count, device=total.device)
    return sum_of_all / count_of_all


def sync_gradients(model: nn.Module, buckets: Iterable[Sequence[nn.Parameter]] | None = None) -> None:
    """Average the gradients over the ranks by hand: what DDP does during backward, after it.

    Equal to DDP's to the bit. Floating-point sums depend on their order, and where in a flat tensor a number
    lies decides in which order a ring adds it up; so the tensor has to be laid out as DDP lays it out. Without
    ``buckets`` that is DDP's layout in its first step: one bucket with all parameters in the order of their
    registration. Later it orders them as their gradients arrive, in buckets of ``bucket_cap_mb``.
    """
    if buckets is None:
        # The wrapper's parameters are those of the model, so either may be given.
        buckets = [[p for p in model.parameters() if p.requires_grad]]
    for bucket in buckets:
        # Small tensors one by one would cost a round trip each; together they cost one.
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        # Before the sum, as DDP does it, which keeps float16 from overflowing.
        flat *= 1 / dist.get_world_size()
        dist.all_reduce(flat)
        for parameter, averaged in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            parameter.grad = averaged.view_as(parameter).clone()


# --- Comparing and sharing ----------------------------------------------------------------------------------


def verify_weight_sync(model: nn.Module) -> dict[str, Any] | None:
    """Compare this rank's weights with rank 0's, bit by bit; None, or the first element that differs.

    Every rank goes through every broadcast, whatever it found: one that returned early would leave the
    others waiting.
    """
    first: dict[str, Any] | None = None
    for name, mine in model.state_dict().items():
        theirs = mine.clone()
        dist.broadcast(theirs, src=0)
        values, reference = mine.flatten(), theirs.flatten()
        # As bytes, since NaN is not equal to itself.
        different = (values.view(torch.uint8) != reference.view(torch.uint8)).nonzero()
        if first is None and len(different):
            at = int(different[0]) // values.element_size()
            first = {"tensor": name, "element": at, "own": values[at].item(), "rank_0": reference[at].item()}
    return first


def share_state(parts: Mapping[str, Any], source: int) -> None:
    """Give every rank one rank's state of things with state_dict and load_state_dict."""
    mine = dist.get_rank() == source
    state = unpack(
        broadcast(pack({name: part.state_dict() for name, part in parts.items()}) if mine else b"", source)
    )
    for name, part in parts.items():
        part.load_state_dict(state[name])


def verify_equal(states: Mapping[str, Any]) -> None:
    """Compare this rank's states with rank 0's to the bit, by digests: 32 bytes are sent, whatever their size.

    Raises:
        TrainerError: on every rank, where one differs; it names the first difference.
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
            raise TrainerError(f"{name} differs between ranks: rank {ranks[0]} differs from rank 0")
    raise TrainerError("a rank has state that rank 0 does not have")


# --- What one rank does for all, and may fail -------------------------------------------------------------------


def on_rank_0(act: Callable[[], bytes | None], failure: str) -> bytes:
    """Do it on rank 0 while the others wait; what it gave, on every rank.

    Raises:
        TrainerError: on every rank, where it failed.
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
        raise TrainerError(answer[1:].decode())
    return answer[1:]


@contextmanager
def all_or_none() -> Iterator[None]:
    """Around what every rank does for itself and may fail on some: where it does, all ranks raise, and one tells.

    A rank that left by itself would leave the others waiting in their next collective.
    """
    error: TrainerError | None = None
    try:
        yield
    except TrainerError as raised:
        error = raised
    except OSError as raised:
        error = TrainerError(f"{raised.filename}: {raised.strerror}")
    size = dist.get_world_size()
    first = torch.tensor([dist.get_rank() if error else size], device=_sends_from())
    dist.all_reduce(first, dist.ReduceOp.MIN)
    if int(first) < size:
        raise TrainerError(str(error or "another rank failed"), printed_by=int(first))


# --- Bytes --------------------------------------------------------------------------------------------------------
# As tensors: torch's own functions for objects need NumPy, and unpickle whatever they are sent.


def broadcast(content: bytes, source: int = 0) -> bytes:
    """One rank's bytes, rank 0's unless told otherwise."""
    size = torch.tensor([len(content)], device=_sends_from())
    dist.broadcast(size, src=source)
    pieces = []
    for start in range(0, int(size), PIECE):
        piece = torch.empty(min(PIECE, int(size) - start), dtype=torch.uint8, device=_sends_from())
        if dist.get_rank() == source:
            piece = to_tensor(content[start : start + PIECE])
        dist.broadcast(piece, src=source)
        pieces.append(_memory(piece.cpu()))
    return b"".join(pieces)


def gather(content: bytes) -> list[bytes]:
    """Every rank's bytes, on rank 0; nothing elsewhere."""
    size = torch.tensor([len(content)], device=_sends_from())
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    most = max(map(int, sizes))
    padded = to_tensor(content.ljust(most, b"\0"))
    every = [torch.empty_like(padded) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(padded, every, dst=0)
    return [_memory(received.cpu())[: int(n)] for received, n in zip(every or (), sizes, strict=False)]


def _sends_from() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def to_tensor(content: bytes) -> Tensor:
    """Bytes, at least one, where the process group can send them."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_sends_from())


def _memory(flat: Tensor) -> bytes:
    return ctypes.string_at(flat.data_ptr(), flat.nbytes)


def pack(state: Any) -> bytes:
    """A state as the bytes of a file that torch.load reads."""
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


def unpack(content: bytes) -> Any:
    """The state in such bytes, in host memory; none of its code is run."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)

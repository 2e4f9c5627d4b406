"""What ranks do together besides DDP: join and leave the group, average, compare, send bytes.

Each function here that communicates has to be called by every rank, in the same order. A call under
``if rank == 0:`` would leave rank 0 waiting for the others, for ever.
"""

import ctypes
import datetime
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from config import Parallel, TrainerError
from states import checksum
from torch import Tensor, nn

PIECE = 64 << 20  # bytes that are sent at once: on NCCL they pass through the memory of the GPU

# --- Joining and leaving --------------------------------------------------------------------------------------


def set_up(parallel: Parallel) -> torch.device:
    """Join the process group, and say which device is this rank's.

    torchrun and other launchers say by variables who meets where. One process by itself is a group of one, on the same
    code path.
    """
    launched = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if not launched and (parallel.world_size or 1) > 1:
        raise TrainerError(
            f"parallel.world_size is {parallel.world_size} and nobody started so many ranks: use torchrun "
            f"--nproc-per-node {parallel.world_size} trainer.py ..."
        )
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE")) if launched else (0, 1)
    device = _device(parallel, rank, int(os.environ.get("LOCAL_RANK", rank)))
    # NCCL moves GPU memory, gloo moves main memory.
    backend = {"cuda": "nccl", "cpu": "gloo"}[device.type] if parallel.backend == "auto" else parallel.backend
    dist.init_process_group(
        backend,
        # A single process meets nobody, so it takes no port.
        store=None if launched else dist.HashStore(),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=parallel.timeout),
        # Lets NCCL connect at once, on the right GPU, so that what is wrong shows here.
        device_id=device if backend == "nccl" else None,
    )
    return device


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


def verify_equal(states: Mapping[str, Any]) -> None:
    """Compare this rank's states with rank 0's to the bit, by digests: 32 bytes are sent, whatever their size. Raises
    TrainerError, on every rank, where one differs."""
    for name, state in states.items():
        mine = to_tensor(bytes.fromhex(checksum(state)))
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        if ranks := [rank for rank, digest in enumerate(every) if not torch.equal(digest, every[0])]:
            raise TrainerError(f"{name} differs between ranks: rank {ranks[0]} differs from rank 0")


# --- What one rank does for all, and may fail -------------------------------------------------------------------


def on_rank_0(act: Callable[[], bytes | None], failure: str) -> bytes:
    """Do it on rank 0 while the others wait; its result on every rank, or a TrainerError on every rank."""
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
    """Around what every rank does for itself and may fail on some: where it does, all ranks raise, and one tells. A
    rank that left by itself would leave the others waiting in their next collective."""
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


def broadcast(content: bytes) -> bytes:
    """Rank 0's bytes."""
    size = torch.tensor([len(content)], device=_sends_from())
    dist.broadcast(size, src=0)
    pieces = []
    for start in range(0, int(size), PIECE):
        piece = torch.empty(min(PIECE, int(size) - start), dtype=torch.uint8, device=_sends_from())
        if dist.get_rank() == 0:
            piece = to_tensor(content[start : start + PIECE])
        dist.broadcast(piece, src=0)
        pieces.append(_memory(piece.cpu()))
    return b"".join(pieces)


def _sends_from() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def to_tensor(content: bytes) -> Tensor:
    """Bytes, at least one, where the process group can send them."""
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_sends_from())


def _memory(flat: Tensor) -> bytes:
    return ctypes.string_at(flat.data_ptr(), flat.nbytes)


def unpack(content: bytes) -> Any:
    """The state in the bytes of a file that torch.save wrote, in host memory; none of its code is run."""
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)

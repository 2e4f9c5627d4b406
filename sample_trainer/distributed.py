"""What ranks do together besides DDP: join and leave the group, average, compare.

Each function here that communicates has to be called by every rank, in the same order. A call under
``if rank == 0:`` would leave rank 0 waiting for the others, for ever.
"""

from __future__ import annotations

import datetime
import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from config import Parallel, TrainerError, own_rank
from exchange import broadcast
from torch import Tensor, nn

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
    first = torch.tensor([dist.get_rank() if error else size])
    if dist.get_backend() == "nccl":
        first = first.cuda()
    dist.all_reduce(first, dist.ReduceOp.MIN)
    if int(first) < size:
        raise TrainerError(str(error or "another rank failed"), printed_by=int(first))


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
        flat *= (
            1 / dist.get_world_size()
        )  # before the sum, as DDP does it, which keeps float16 from overflowing
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
    packed = io.BytesIO()
    if dist.get_rank() == source:
        torch.save({name: part.state_dict() for name, part in parts.items()}, packed)
    state = torch.load(io.BytesIO(broadcast(packed.getvalue(), source)), weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])

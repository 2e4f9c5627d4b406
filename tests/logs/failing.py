"""A training script that fails in the way its first argument names. Run by make_outputs.py, by path, under torchrun."""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

TIMEOUT = 6
"""Seconds that a collective waits here."""


def start(timeout: float = TIMEOUT) -> int:
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    return dist.get_rank()


def train(rank: int, steps: int = 3) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    for step in range(steps):
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


def healthy() -> None:
    train(start())
    dist.barrier()
    dist.destroy_process_group()


def variables() -> None:
    start()


def exception() -> None:
    rank = start()
    train(rank)
    if rank == dist.get_world_size() - 2:
        labels = {"cat": 0}
        print(labels["dog"])
    train(rank)


def chained() -> None:
    rank = start()
    train(rank)
    if rank == 1:
        try:
            Path("missing.yaml").read_text()
        except OSError as failed:
            raise RuntimeError("the configuration could not be read") from failed
    train(rank)


def uneven() -> None:
    rank = start()
    train(rank, steps=4 - rank)
    time.sleep(2 * TIMEOUT if rank else 0)


def mismatch() -> None:
    rank = start()
    dist.all_reduce(torch.ones(10 if rank else 20))


def rank_0_alone() -> None:
    rank = start()
    train(rank)
    if rank == 0:
        dist.barrier()
    time.sleep(2 * TIMEOUT)


def long_work() -> None:
    rank = start()
    for done in range(TIMEOUT + 4 if rank == 0 else 0):
        share = done / (4 * TIMEOUT)
        bar = f"\rtokenizing: {share:4.0%}|{'#' * done}| {done}/{4 * TIMEOUT} [00:{done:02}<00:59, 1.00 examples/s]"
        print(bar, end="", flush=True)
        time.sleep(1)
    dist.barrier()


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.head = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def unused() -> None:
    start()
    model = DistributedDataParallel(Unused())
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.block = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.block, self.enter(x), use_reentrant=True)
        return checkpoint(self.block, x, use_reentrant=True)


def ready_twice() -> None:
    start()
    model = DistributedDataParallel(Twice())
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()


def model_differs() -> None:
    rank = start()
    DistributedDataParallel(nn.Linear(4, 2 + rank))


def truncated() -> None:
    rank = start()
    if rank == 0:
        torch.save(nn.Linear(99, 99).state_dict(), "last.pt")
        whole = Path("last.pt").read_bytes()
        Path("last.pt").write_bytes(whole[: len(whole) // 2])
    dist.barrier()
    torch.load("last.pt")


def prefix() -> None:
    start()
    saved = DistributedDataParallel(nn.Linear(4, 2)).state_dict()
    nn.Linear(4, 2).load_state_dict(saved)


def full_disk() -> None:
    rank = start()
    train(rank)
    if rank == 0:
        with Path("/dev/full").open("wb") as full:
            full.write(bytes(1 << 20))
    train(rank)


def killed(number: int) -> Callable[[], None]:
    def run() -> None:
        rank = start()
        train(rank)
        if rank == 1:
            os.kill(os.getpid(), number)
        train(rank)

    return run


def hangup() -> None:
    train(start())
    if dist.get_rank() == 0:
        os.kill(os.getppid(), signal.SIGHUP)
    time.sleep(30)


def memory() -> None:
    rank = start()
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        torch.zeros(20 << 30)
    train(rank)


class Items(Dataset[torch.Tensor]):
    def __init__(self, fail: Callable[[], Any] | None = None) -> None:
        self.fail = fail

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 40 and self.fail and dist.get_rank() == 1:
            self.fail()
        return torch.ones(1024)


def files() -> None:
    rank = start()
    kept = []
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
    for _ in range(99):
        kept.append(Path("/dev/null").open())  # noqa: SIM115
    train(rank)


def worker_raises() -> None:
    start()
    for _ in DataLoader(Items(lambda: {}["label"]), batch_size=4, num_workers=1):
        dist.barrier()


def worker_killed() -> None:
    start()
    for _ in DataLoader(Items(lambda: os.kill(os.getpid(), signal.SIGKILL)), batch_size=4, num_workers=1):
        dist.barrier()


def shared_memory() -> None:
    start()
    for _ in DataLoader(Items(), batch_size=32, num_workers=2, prefetch_factor=16):
        time.sleep(0.5)


FAILURES: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        healthy,
        variables,
        exception,
        chained,
        uneven,
        mismatch,
        rank_0_alone,
        long_work,
        unused,
        ready_twice,
        model_differs,
        truncated,
        prefix,
        full_disk,
        hangup,
        memory,
        files,
        worker_raises,
        worker_killed,
        shared_memory,
    )
} | {
    f"killed_{number.name.lower()}": killed(number)
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGTERM)
}

if __name__ == "__main__":
    FAILURES[sys.argv[1]]()

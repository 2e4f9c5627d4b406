"""A small, right DistributedDataParallel trainer: a byte-level transformer on text that every Python carries.

    torchrun --nproc-per-node 4 trainer.py          # four ranks on this machine
    python trainer.py                               # the same code as one rank, no launcher
    python trainer.py --epochs 5 --steps 200        # longer

Each rank leaves rank<R>.json in the output folder when it is done, and rank 0 a checkpoint. Reads top to
bottom: data, helpers, trainer, main. The text and the model are in language_model.py.
"""
# mypy: allow-untyped-calls
# (torch leaves DistributedDataParallel.train and Tensor.backward untyped)

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sized
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
import torch.distributed as dist
from language_model import ByteTransformer, read_text
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

BATCH_SIZE = 8  # samples per rank and step
LEARNING_RATE = 1e-2  # falls within the few steps that a smoke test has, and is still stable
SEED = 0

log = logging.getLogger("trainer")


# --- Data ---------------------------------------------------------------------------------------------------


def create_distributed_dataloader(
    dataset: Dataset[tuple[Tensor, Tensor]], *, train: bool
) -> DataLoader[tuple[Tensor, Tensor]]:
    """This rank's share of a dataset.

    For training, shuffled, and cut to an equal number of full batches: a rank with one more would wait for
    the others in its gradient all-reduce for ever. For evaluation, every sample exactly once over all ranks:
    DistributedSampler would pad to equal shares by repeating samples, and a repeated sample counts twice.
    """
    if train:
        sampler: DistributedSampler[Any] = DistributedSampler(dataset, seed=SEED, drop_last=True)
        return DataLoader(dataset, BATCH_SIZE, sampler=sampler, drop_last=True)
    share = range(dist.get_rank(), len(cast(Sized, dataset)), dist.get_world_size())
    return DataLoader(Subset(dataset, share), BATCH_SIZE)


# --- Helpers ------------------------------------------------------------------------------------------------


def reduce_mean(total: Tensor, count: int) -> float:
    """The mean over all ranks from each rank's sum and count; a mean of means would weigh ranks wrongly."""
    sums = torch.stack([total.double(), torch.tensor(float(count), dtype=torch.double, device=total.device)])
    dist.all_reduce(sums)
    return float(sums[0] / sums[1])


def verify_weight_sync(model: nn.Module) -> dict[str, Any] | None:
    """Compare this rank's weights with rank 0's, bit by bit; None, or the first element that differs.

    Every rank goes through every broadcast, whatever it found: one that returned early would leave the
    others waiting.
    """
    first: dict[str, Any] | None = None
    for name, mine in model.state_dict().items():
        theirs = mine.clone()
        dist.broadcast(theirs, src=0)
        own, reference = mine.flatten(), theirs.flatten()
        # As bytes, since NaN is not equal to itself.
        different = (own.view(torch.uint8) != reference.view(torch.uint8)).nonzero()
        if first is None and len(different):
            at = int(different[0]) // own.element_size()
            first = {"tensor": name, "element": at, "own": own[at].item(), "rank_0": reference[at].item()}
    return first


def checksum(weights: Mapping[str, Tensor]) -> str:
    """A digest of weights, their names and shapes: equal only where every bit is."""
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        flat = tensor.cpu().contiguous()
        digest.update(f"{name} {flat.dtype} {tuple(flat.shape)}".encode())
        digest.update(ctypes.string_at(flat.data_ptr(), flat.nbytes))
    return digest.hexdigest()


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that whoever looks, and whenever, finds all of it or nothing."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


# --- Trainer ------------------------------------------------------------------------------------------------


class DDPTrainer:
    """Trains one model on all ranks of the process group."""

    def __init__(self, model: nn.Module, device: torch.device, folder: Path) -> None:
        self.device = device
        self.folder = folder
        # Gives every rank the weights of rank 0, and averages the gradients over the ranks in each backward.
        self.model = DistributedDataParallel(
            model.to(device), device_ids=[device.index] if device.type == "cuda" else None
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.samples = 0

    @property
    def bare_model(self) -> nn.Module:
        """The model without its wrapper, whose names carry no ``module.`` prefix."""
        return cast(nn.Module, self.model.module)

    def _loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        guesses = model(inputs.to(self.device))
        return functional.cross_entropy(guesses.flatten(0, 1), targets.to(self.device).flatten())

    def train_epoch(self, loader: DataLoader[tuple[Tensor, Tensor]], epoch: int, steps: int) -> list[float]:
        """At most this many steps of one pass; the loss of each, averaged over the ranks."""
        cast("DistributedSampler[Any]", loader.sampler).set_epoch(epoch)  # or every pass has the same order
        self.model.train()
        losses = []
        for inputs, targets in islice(loader, steps):
            self.optimizer.zero_grad()
            loss = self._loss(self.model, inputs, targets)
            loss.backward()
            self.optimizer.step()
            self.samples += len(inputs)
            losses.append(loss.detach())
        averaged = torch.stack(losses)  # one all-reduce for all: each rank has equally many, of equal size
        dist.all_reduce(averaged)
        return (averaged / dist.get_world_size()).tolist()

    @torch.no_grad()
    def evaluate(self, loader: DataLoader[tuple[Tensor, Tensor]]) -> float:
        """The mean loss over all samples of all ranks, each counted once.

        On the bare model: ranks may have different numbers of batches here, and DDP's forward may communicate.
        """
        self.model.eval()
        total, count = torch.zeros((), dtype=torch.double, device=self.device), 0
        for inputs, targets in loader:
            total += self._loss(self.bare_model, inputs, targets).double() * len(inputs)
            count += len(inputs)
        return reduce_mean(total, count)

    def save_checkpoint(self, epoch: int) -> Path:
        """Rank 0 writes; nobody goes on before the file is complete."""
        path = self.folder / "checkpoint.pt"
        if dist.get_rank() == 0:
            weights = self.bare_model.state_dict()
            state = {
                "model": weights,
                "checksum": checksum(weights),
                "optimizer": self.optimizer.state_dict(),
                "epoch": epoch,
            }
            write_atomically(path, lambda file: torch.save(state, file))
        dist.barrier()
        return path

    def verify_checkpoint(self, path: Path) -> None:
        """Read the checkpoint back on this rank.

        Raises:
            RuntimeError: it does not hold what rank 0 wrote.
        """
        saved = torch.load(path, map_location="cpu", weights_only=True)
        if checksum(saved["model"]) != saved["checksum"]:
            raise RuntimeError(f"{path} does not hold the weights that rank 0 wrote")


# --- Main ---------------------------------------------------------------------------------------------------


def set_up(backend: str) -> torch.device:
    """Join the process group that torchrun's variables describe, or be the only rank of one."""
    alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}
    for name, value in alone.items():
        os.environ.setdefault(name, str(value))
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group(backend, device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group(backend)
    return device


def shut_down() -> None:
    """Leave the process group.

    The pause is for gloo: in torch 2.13 a group that is destroyed while its worker thread still lets go of
    the last collective can abort the process (pytorch issue 190489), in up to a third of all runs. Nothing
    is outstanding here that could be waited for: every result has been read.
    """
    time.sleep(0.2)
    dist.destroy_process_group()


def train(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Train, evaluate, save, verify; what this rank saw."""
    torch.manual_seed(
        SEED + dist.get_rank()
    )  # unequal on purpose, as dropout wants it: DDP makes weights equal
    train_text, held_out_text = read_text()
    train_loader = create_distributed_dataloader(train_text, train=True)
    held_out_loader = create_distributed_dataloader(held_out_text, train=False)
    trainer = DDPTrainer(ByteTransformer(), device, options.out)

    start = time.perf_counter()
    losses: list[float] = []
    for epoch in range(options.epochs):
        losses += trainer.train_epoch(train_loader, epoch, options.steps)
        gc.collect(1)
        log.info("epoch %d: loss %.3f at step %d", epoch, losses[-1], len(losses))
    trained = time.perf_counter()
    evaluation_loss = trainer.evaluate(held_out_loader)
    log.info("held-out loss %.3f over %d samples", evaluation_loss, len(held_out_text))
    evaluated = time.perf_counter()
    trainer.verify_checkpoint(trainer.save_checkpoint(options.epochs))
    return {
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "evaluation_loss": evaluation_loss,
        "evaluation_samples": len(held_out_text),
        "steps": len(losses),
        "samples": trainer.samples,
        "weights": checksum(trainer.bare_model.state_dict()),
        "difference": verify_weight_sync(trainer.bare_model),
        "seconds": {
            "train": trained - start,
            "evaluate": evaluated - trained,
            "checkpoint": time.perf_counter() - evaluated,
        },
    }


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small language model with DDP.")
    parser.add_argument("--backend", default="nccl" if torch.cuda.is_available() else "gloo")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="at most this many steps in each epoch")
    parser.add_argument("--out", type=Path, default=Path("trainer-output"), help="folder for results")
    return parser.parse_args()


@record
def main() -> None:
    """One rank's life. ``record`` writes an exception where torchrun looks for it."""
    # A rank that collects garbage in the middle of a step makes all the others wait: collect together, between
    # epochs. Importing what DDP needs is a third quicker for it, too.
    gc.disable()
    options = parse_options()
    device = set_up(options.backend)
    try:
        rank = dist.get_rank()
        logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(message)s")
        options.out.mkdir(parents=True, exist_ok=True)
        summary = {
            "rank": rank,
            "world_size": dist.get_world_size(),
            "backend": dist.get_backend(),
            "device": str(device),
            "torch": torch.__version__,
            "python": platform.python_version(),
            **train(options, device),
        }
        path = options.out / f"rank{rank}.json"
        write_atomically(path, lambda file: file.write(json.dumps(summary).encode()))
        dist.barrier()  # a rank that left now could, by the way it ends, take the others with it
    finally:
        shut_down()


if __name__ == "__main__":
    main()

"""Steps per second of the trainer against the smallest loop that one would write by hand, with the same model.

Both train on the same ranks, in turns of ten steps, within the trainer's own epochs: a machine that is busy for a
tenth of a second is busy for both, and each turn of the trainer's has one line of its log.
Run as ``python benchmarks/trainer_overhead.py --nproc 2``.
"""
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

from limits import tell

TRAINER = Path(__file__).parents[1] / "sample_trainer"
TURN = 10


def by_hand(model: Any, dataset: Any, batch_size: int) -> Iterator[None]:
    """A step for each that is asked for."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size, sampler=sampler, drop_last=True)
    for epoch in count():
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = cross_entropy(wrapped(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            yield


class InTurns:
    """The trainer's loader, which lets the other loop take its turn before each turn of the trainer's."""

    def __init__(self, loader: Any, hand: Iterator[None]) -> None:
        self._loader, self._hand = loader, hand
        self.even, self.begin = loader.even, loader.begin
        self.taken: list[tuple[float, float]] = []
        """Seconds of a turn by hand, and of the trainer's after it."""

    def __iter__(self) -> Iterator[Any]:
        import torch.distributed as dist

        by_hand = middle = 0.0
        for number, batch in enumerate(self._loader):
            if number % TURN == 0:
                dist.barrier()
                begin = time.perf_counter()
                if number > TURN:  # what an epoch begins with is no training step
                    self.taken.append((by_hand, begin - middle))
                for _ in islice(self._hand, TURN):
                    pass
                dist.barrier()
                middle = time.perf_counter()
                by_hand = middle - begin
            yield batch


def measure(turns: int, words: list[str]) -> list[tuple[float, float]]:
    """Seconds of so many turns by hand and of the trainer; on one of the ranks."""
    sys.path.insert(0, str(TRAINER))
    import torch
    import torch.distributed as dist
    import trainer
    from config import read_config
    from data import load
    from distributed import set_up, shut_down
    from models import ByteTransformer
    from run_folder import RunFolder, choose_folder

    config = read_config(None, ["parallel.device=cpu", f"run.log_every={TURN}", *words])
    device = set_up(config.parallel)
    folder = choose_folder(config)
    material = load(config.data)
    torch.manual_seed(0)
    hand = by_hand(
        ByteTransformer(config.model, config.data.context), material.training, config.data.batch_size
    )
    ours = trainer.DDPTrainer(
        config, material, ByteTransformer(config.model, config.data.context), device, folder
    )
    loader = InTurns(trainer.create_distributed_dataloader(material.training, config.data, train=True), hand)
    with RunFolder(config, folder, device, ours.planned, 0) as ours.meter.run:
        for epoch in count():
            ours.progress.batches = ours.progress.samples = 0
            ours.train_epoch(cast(Any, loader), epoch)
            if len(loader.taken) >= turns:
                break
    rank = dist.get_rank()
    shut_down()
    return loader.taken if rank == 0 else []


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the trainer against a loop written by hand.")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--turns", type=int, default=300, help="of ten steps each")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="of the trainer's configuration")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        ranks = ["--nproc-per-node", str(options.nproc)]
        with tempfile.TemporaryDirectory() as folder:
            command = [*launcher, *ranks, "--", __file__, *sys.argv[1:], f"run.folder={folder}"]
            sys.exit(subprocess.run(command, check=False).returncode)
    taken = measure(options.turns, options.words)
    if taken:
        hand, ours = (TURN / statistics.median(times) for times in zip(*taken, strict=True))
        kept = [by_hand / with_trainer for by_hand, with_trainer in taken]
        lost = 1 - statistics.median(kept)
        # Of a median of n values, where these are spread as a normal distribution would be.
        unsure = 1.25 * statistics.stdev(kept) / len(kept) ** 0.5
        print(f"{options.nproc} ranks, gloo, {len(taken)} turns of {TURN} steps each; medians")
        print(f"by hand      {hand:7.1f} steps/s")
        print(f"the trainer  {ours:7.1f} steps/s   {lost:+.1%} +- {unsure:.1%} lost")
        tell("trainer", 100 * lost, of=f"{options.nproc} ranks", spread=f"+- {100 * unsure:.1f}")


if __name__ == "__main__":
    main()

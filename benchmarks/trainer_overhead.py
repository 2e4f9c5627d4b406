"""Steps per second of the trainer against the smallest loop that one would write by hand, with the same model.

Both train in blocks of steps, in alternation on the same ranks, so that a machine that is busy for a while is busy
for both. Run as ``python benchmarks/trainer_overhead.py --nproc 2``.
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
from typing import Any

TRAINER = Path(__file__).parents[1] / "sample_trainer"
LIMIT = 0.03


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


def measure(rounds: int, steps: int, words: list[str]) -> list[tuple[float, float]]:
    """Seconds for a block of steps by hand and with the trainer, in each round; on one of the ranks."""
    sys.path.insert(0, str(TRAINER))
    import torch
    import torch.distributed as dist
    import trainer
    from config_file import read_config
    from distributed import set_up, shut_down
    from models import create_model
    from preparation import choose_folder, open_run, prepare_data

    config = read_config(None, ["parallel.device=cpu", f"train.steps={steps}", *words])
    device = set_up(config.parallel)
    folder = choose_folder(config)
    material = prepare_data(config, folder)
    torch.manual_seed(0)
    hand = by_hand(create_model(config, material), material.training, config.data.batch_size)
    ours = trainer.DDPTrainer(config, material, create_model(config, material), device, folder)
    loader = trainer.create_distributed_dataloader(material.training, config.data, train=True)
    taken = []
    with open_run(config, folder, device, ours.planned) as ours.meter.run:
        for number in range(rounds + 1):  # the first is not counted
            dist.barrier()
            begin = time.perf_counter()
            for _ in islice(hand, steps):
                pass
            dist.barrier()
            middle = time.perf_counter()
            ours.position.batches = ours.position.samples = 0
            ours.train_epoch(loader, number)
            dist.barrier()
            taken.append((middle - begin, time.perf_counter() - middle))
    rank = dist.get_rank()
    shut_down()
    return taken[1:] if rank == 0 else []


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the trainer against a loop written by hand.")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="of the trainer's configuration")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        ranks = ["--nproc-per-node", str(options.nproc)]
        with tempfile.TemporaryDirectory() as folder:
            own = [*launcher, *ranks, "--", __file__, *sys.argv[1:], f"run.folder={folder}"]
            sys.exit(subprocess.run(own, check=False).returncode)
    taken = measure(options.rounds, options.steps, options.words)
    if taken:
        hand, ours = (options.steps / statistics.median(one) for one in zip(*taken, strict=True))
        lost = statistics.median(1 - by_hand / with_trainer for by_hand, with_trainer in taken)
        print(
            f"{options.nproc} ranks, gloo, {options.rounds} rounds of {options.steps} steps in alternation; medians"
        )
        print(f"by hand      {hand:7.1f} steps/s")
        print(f"the trainer  {ours:7.1f} steps/s   {lost:+.1%} lost   limit {LIMIT:.0%}")


if __name__ == "__main__":
    main()

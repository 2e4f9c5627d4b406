"""A reference trainer for DistributedDataParallel, to run, to read and to copy.

    torchrun --nproc-per-node 4 trainer.py                           # four ranks on this machine
    python trainer.py                                                # the same code as one rank, no launcher
    torchrun --nproc-per-node 2 trainer.py --config configs/sgd.yaml train.epochs=5
    python trainer.py --dry-run data.batch_size=16                   # what would be done

The trainer with its loop, then one rank's life. What it calls lies beside it:

    config.py                    what can be set              distributed.py   joining, averaging, comparing
    data.py, loading.py          the data, and whose it is    windows.py       what makes one step; when all stop
    models.py                    the model, DDP, optimizer    checkpoints.py   saving and resuming, with
    progress.py, run_folder.py   what is measured, where                       checkpoint_files.py, states.py
"""
# mypy: allow-untyped-calls
# (torch leaves DistributedDataParallel.train and Tensor.backward untyped)

import contextlib
import gc
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from checkpoints import Checkpoints
from config import Config, errors_printed_once, read_command_line
from data import IGNORED, Material, load
from distributed import (
    all_or_none,
    reduce_mean,
    reduce_sums,
    set_up,
    shut_down,
    sync_gradients,
    verify_weight_sync,
)
from loading import Batch, Loader, create_distributed_dataloader
from models import create_model, create_optimizer, create_schedule, planned_steps, wrap
from progress import Meter, Progress
from run_folder import RunFolder, choose_folder, leave_summary
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from windows import Window, windows

__all__ = [
    "DDPTrainer",
    "create_distributed_dataloader",
    "reduce_mean",
    "sync_gradients",
    "verify_weight_sync",
]

log = logging.getLogger("trainer")


class DDPTrainer:
    """Trains one model on all ranks of the process group."""

    def __init__(
        self, config: Config, material: Material, model: nn.Module, device: torch.device, folder: Path
    ) -> None:
        self.config, self.device = config, device
        self.model = wrap(model, config, device)
        self.optimizer = create_optimizer(self.model.parameters(), config.optimizer)
        self.planned = planned_steps(config, len(material.training), dist.get_world_size())
        self.schedule = create_schedule(self.optimizer, config.optimizer, self.planned)
        precision = getattr(torch, config.train.precision)
        lower = precision != torch.float32
        self.casting = torch.autocast(device.type, precision) if lower else contextlib.nullcontext()
        # Keeps the small gradients of float16 above zero; for the other types it does nothing.
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
        self.progress = Progress()
        inputs, targets = material.training[0]
        self.nothing = torch.zeros_like(inputs)[None], torch.full_like(targets, IGNORED)[None]
        # Ranks count their data in host memory, which NCCL does not reach: a GPU would have to be waited for.
        self.counting = dist.new_group(backend="gloo") if dist.get_backend() == "nccl" else None
        self.meter = Meter(self.bare_model, self.progress, device)
        self.saved_at, self.save_every = -1, config.checkpoint.every or sys.maxsize
        replicated = {"optimizer": self.optimizer, "schedule": self.schedule, "scaler": self.scaler}
        self.checkpoints = Checkpoints(
            folder / "checkpoints", self.bare_model, replicated, self.progress, keep=config.checkpoint.keep
        )

    @property
    def bare_model(self) -> nn.Module:
        """The model without its wrapper, whose names carry no ``module.`` prefix."""
        return cast(nn.Module, self.model.module)

    # --- Training ---------------------------------------------------------------------------------------------

    def train_epoch(self, loader: Loader, epoch: int) -> None:
        """One pass over the data, or what is left of it after a resume."""
        loader.begin(epoch, self.progress.samples)
        self.model.train()
        self.meter.restart()
        for window in self.windows(loader):
            self.take(window)
            if self.progress.step % self.config.run.log_every == 0:
                self.meter.log_steps()
            if self.progress.step % self.save_every == 0:
                self.save_checkpoint()
        self.meter.log_steps()

    def take(self, window: Window) -> None:
        """One step, and how far the run has come by it."""
        self.meter.add(*self.train_step(window))
        self.progress.step += 1
        self.progress.batches += self.config.train.accumulation
        self.progress.samples += window.samples
        self.progress.trained += window.samples

    def windows(self, loader: Loader) -> Iterator[Window]:
        """The batches of each step, until the ranks stop."""
        train = self.config.train
        limit = None if train.steps is None else train.steps - self.progress.batches // train.accumulation
        size, uneven = train.accumulation, self.config.data.uneven
        return windows(loader, size, limit, uneven, self.nothing, self.counting, even=loader.even)

    def train_step(self, window: Window) -> tuple[Tensor, Tensor | None, float]:
        """One optimizer step: this rank's loss, the gradient's norm, and the learning rate.

        The loss of a step is the mean over the targets of all its batches on all ranks, so that it does not
        matter how many ranks there are, or how many batches a step is cut into. It is the mean of the ranks' losses.
        """
        self.seed_step()
        self.optimizer.zero_grad()
        weight, losses = dist.get_world_size() / window.targets, []  # DDP divides by the number of ranks
        for number, batch in enumerate(window.batches, 1):
            # The gradients of the batches add up on this rank; only with the last do they go to the others.
            with self.model.no_sync() if number < len(window.batches) else contextlib.nullcontext():
                loss = cross_entropy(*self.guess(self.model, batch), reduction="sum") * weight
                self.scaler.scale(loss).backward()
            losses.append(loss.detach())
        # Synchronised by now, so that the norm is that of the whole gradient, and the same on every rank.
        self.scaler.unscale_(self.optimizer)
        clip = self.config.train.clip
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip) if clip else None
        self.scaler.step(self.optimizer)
        self.scaler.update()
        lr = cast(float, self.schedule.get_last_lr()[0])
        self.schedule.step()
        return cast(Tensor, sum(losses)), norm, lr

    def seed_step(self) -> None:
        """Have what is drawn in a step, as for dropout, follow from the seed, the step and the rank alone.

        So ranks draw different numbers, and a run that was resumed draws what it would have without a checkpoint of
        random states.
        """
        on_gpu = self.device.type == "cuda"
        generator = torch.cuda.default_generators[self.device.index] if on_gpu else torch.default_generator
        seed = (self.config.train.seed * 1_000_003 + self.progress.step) * 1_000_003 + dist.get_rank()
        generator.manual_seed(seed % 2**63)

    def guess(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """One row of scores for each target, and the targets."""
        inputs, targets = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        with self.casting:
            scores = model(inputs)
        return scores.flatten(0, -2).float(), targets.flatten()

    def train(self, training: Loader, held_out: Loader) -> float | None:
        """All epochs that are left; the last evaluation's loss."""
        evaluation = self.config.evaluation
        loss = None
        for epoch in range(self.progress.epoch, self.config.train.epochs):
            self.train_epoch(training, epoch)
            # A rank that collects garbage in the middle of a step makes all the others wait: collect together.
            gc.collect(1)
            self.progress.epoch, self.progress.batches, self.progress.samples = epoch + 1, 0, 0
            self.meter.tell_epoch()
            if (epoch + 1) % evaluation.every == 0 or epoch + 1 == self.config.train.epochs:
                loss = self.evaluate(held_out)
                better, stop = self.progress.judge(loss, evaluation, self.device)
                if better and evaluation.keep_best:
                    self.save_checkpoint(best=True)
                if stop:
                    self.meter.stop_early()
                    break
        return loss

    # --- Evaluation -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self, loader: Loader) -> float:
        """The mean loss over all held-out targets of all ranks, each counted once."""
        for buffer in self.bare_model.buffers():
            dist.broadcast(buffer, src=0)  # running averages are each rank's own since its last forward
        # Without the wrapper: ranks may have different numbers of batches, and DDP's forward may communicate.
        self.bare_model.eval()
        loader.begin(0)
        loss = hits = torch.zeros((), dtype=torch.double, device=self.device)
        count = 0
        for batch in loader:
            scores, targets = self.guess(self.bare_model, batch)
            loss = loss + cross_entropy(scores, targets, reduction="none").double().sum()
            hits = hits + (scores.argmax(-1) == targets).sum()
            count += int((targets != IGNORED).sum())
        # Sums and counts, since a mean of the ranks' means would weigh their targets differently.
        losses, all_hits, targets_of_all = reduce_sums(loss, hits, count, device=self.device)
        mean, accuracy = losses / targets_of_all, all_hits / targets_of_all
        self.meter.tell_evaluation(mean, accuracy, targets_of_all)
        return mean

    # --- Checkpoints ------------------------------------------------------------------------------------------

    def save_checkpoint(self, *, best: bool = False) -> None:
        """Rank 0 writes what all ranks have, after all of them have compared it."""
        if self.saved_at == self.progress.step and not best:
            return
        self.checkpoints.save(self.progress.step, best=best)
        self.saved_at = self.progress.step
        self.meter.note("checkpoint", best=best)
        self.meter.restart()

    def load_checkpoint(self) -> bool:
        """Go on from the newest checkpoint of the run folder; False where it is that of a run that is complete."""
        if (newest := self.checkpoints.newest()) is None:
            log.warning("no checkpoint in %s: starts at step 0", self.checkpoints.folder)
            return True
        # DDP lays out its buckets anew after its first backward, and sums depend on the layout in their last bit.
        # So that the first step is the one that would have been, the first backward is one of nothing.
        cross_entropy(*self.guess(self.model, self.nothing), reduction="sum").backward()
        self.optimizer.zero_grad()
        self.checkpoints.load(newest)
        self.saved_at = self.progress.step
        return self.progress.tell_resumed(self.config)


# --- One rank's life --------------------------------------------------------------------------------------------------


def train(config: Config, device: torch.device) -> None:
    """One rank's part of a run."""
    folder = choose_folder(config)
    with all_or_none():
        material = load(config.data)
    torch.manual_seed(config.train.seed)
    trainer = DDPTrainer(config, material, create_model(config), device, folder)
    training, held_out = (
        create_distributed_dataloader(source, config.data, train=train, seed=config.train.seed)
        for source, train in ((material.training, True), (material.held_out, False))
    )
    if config.checkpoint.resume and not trainer.load_checkpoint():
        return
    begun = trainer.progress.step
    trainer.checkpoints.begin(begun)
    with RunFolder(config, folder, device, trainer.planned, begun) as trainer.meter.run:
        loss = trainer.train(training, held_out)
        leave_summary(folder, trainer.meter.summary(loss))
        trainer.save_checkpoint()


@record
def main() -> None:
    """One rank's life. ``record`` writes an exception where torchrun looks for it."""
    # A rank that collects garbage in the middle of a step makes all the others wait: collect together, between
    # epochs. Importing what DDP needs is a third quicker for it, too.
    gc.disable()
    with errors_printed_once():
        if (config := read_command_line()) is None:
            return
        try:
            device = set_up(config.parallel)
            level = logging.INFO if dist.get_rank() == 0 else logging.ERROR
            logging.basicConfig(level=level, format="%(message)s")
            train(config, device)
            dist.barrier()  # a rank that left now could, by the way it ends, take the others with it
        finally:
            shut_down()


if __name__ == "__main__":
    main()

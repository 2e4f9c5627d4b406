"""How far a run has come: what it measures, what it decides from that, and what it writes down.

What is averaged over the ranks is averaged when it is logged and not before: that is a collective.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from components import Counters, Position, checksum
from config import Config, Evaluation, TrainerError
from distributed import verify_weight_sync
from run_folder import Kind, RunFolder
from torch import Tensor, nn

log = logging.getLogger("trainer")

NO_PROGRESS = "no progress in {} evaluations"


@dataclass
class Progress(Counters):
    """What a run has come to so far, and has to know when it goes on from a checkpoint."""

    samples: int = 0
    """Trained on, by all ranks together."""
    best_loss: float = float("inf")
    evaluations_since: int = 0

    def judge(self, loss: float, evaluation: Evaluation, device: torch.device) -> tuple[bool, bool]:
        """Whether this evaluation is the best so far, and whether to stop now.

        Rank 0 decides and tells the others. Each rank for itself would mostly come to the same; but the one
        time when a last bit differs, some ranks leave the loop and the others wait for them.
        """
        better = loss < self.best_loss - evaluation.progress
        since = 0 if better else self.evaluations_since + 1
        stop = evaluation.patience is not None and since >= evaluation.patience
        decided = torch.tensor([int(better), int(stop)], device=device)
        dist.broadcast(decided, src=0)
        better, stop = decided.bool().tolist()
        self.best_loss = loss if better else self.best_loss
        self.evaluations_since = 0 if better else self.evaluations_since + 1
        return better, stop

    def tell_resumed(self, position: Position, config: Config) -> bool:
        """Say where a run goes on, or that it is complete; whether it goes on."""
        patience = config.evaluation.patience
        reason = ""
        if position.epoch >= config.train.epochs:
            reason = f"train.epochs={config.train.epochs}"
        elif patience is not None and self.evaluations_since >= patience:
            reason = f"stopped early, {NO_PROGRESS.format(self.evaluations_since)}"
        if reason:
            log.info("complete at step %d: %s; there is nothing left to train", position.step, reason)
        else:
            log.info("resumes at step %d, epoch %d", position.step, position.epoch + 1)
        return not reason


class Meter:
    """Collects the steps since the last line of metrics.jsonl, and rank 0 writes the lines."""

    def __init__(
        self, model: nn.Module, position: Position, progress: Progress, device: torch.device
    ) -> None:
        self._model = model
        self._position, self._progress, self._device = position, progress, device
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None
        self._lr = 0.0
        self.run: RunFolder | None = None
        """While the run lasts."""
        self.seconds: dict[str, float] = {"train": 0.0, "evaluate": 0.0, "checkpoint": 0.0}
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.restart()

    def add(self, loss: Tensor, norm: Tensor | None, lr: float) -> None:
        """One step: this rank's loss, and the norm of the gradient where it was clipped."""
        self._losses.append(loss)
        self._norm, self._lr = norm, lr

    def add_missed(self, steps: int) -> None:
        """Steps that other ranks took without this one."""
        self._losses += [torch.zeros((), device=self._device)] * steps

    def restart(self) -> None:
        """Take the time from here on: what came before was no training."""
        self._before, self._begun = self._progress.samples, time.perf_counter()

    def log_steps(self) -> None:
        """One line for the steps since the last."""
        if not self._losses:
            return
        losses = torch.stack(self._losses)
        dist.all_reduce(losses)  # the loss of a step is the mean of the ranks'
        values = (losses / dist.get_world_size()).tolist()
        self.first_loss = values[0] if self.first_loss is None else self.first_loss
        self.last_loss = values[-1]
        seconds = time.perf_counter() - self._begun
        self.note(
            "step",
            loss=sum(values) / len(values),
            lr=self._lr,
            grad_norm=self._gradient_norm(),
            samples=self._progress.samples,
            samples_per_second=(self._progress.samples - self._before) / seconds,
            seconds=seconds,
            memory_bytes=_memory(self._device),
        )
        self._losses = []
        self.restart()

    def _gradient_norm(self) -> float | None:
        """Of the last step: its gradients are still there. Under Join a rank may have taken none."""
        if self._norm is None:
            norms = [
                parameter.grad.norm() for parameter in self._model.parameters() if parameter.grad is not None
            ]
            return float(torch.stack(norms).norm()) if norms else None
        return float(self._norm)

    def note(self, kind: Kind, **values: Any) -> None:
        """Rank 0 writes it down; every rank calls it."""
        if self.run:
            self.run.add(kind, self._position.step, self._position.epoch, values)

    def tell_evaluation(self, loss: float, accuracy: float, targets: float) -> None:
        """For whoever watches, and for the run folder."""
        log.info("held-out loss %.3f, accuracy %.3f over %d targets", loss, accuracy, targets)
        self.note("evaluation", evaluation_loss=loss, evaluation_accuracy=accuracy)

    def tell_epoch(self) -> None:
        """For whoever watches."""
        epoch, step = self._position.epoch, self._position.step
        if not step:
            raise TrainerError(
                "an epoch has no step, since some rank has less than one batch; use data.uneven=pad or a smaller "
                "data.batch_size"
            )
        if self.last_loss is None:
            log.info("epoch %d: there is nothing left to train after step %d", epoch, step)
        else:
            log.info("epoch %d: loss %.3f at step %d", epoch, self.last_loss, step)

    def stop_early(self) -> None:
        """Say so, and let run.json say so."""
        log.info("stopped early: %s", NO_PROGRESS.format(self._progress.evaluations_since))
        if self.run:
            self.run.ending = "stopped early"

    def summary(self, evaluation_loss: float | None, evaluation_samples: int) -> dict[str, Any]:
        """What this rank has come to; verified against rank 0."""
        return {
            "first_loss": self.first_loss,
            "last_loss": self.last_loss,
            "steps": self._position.step,
            "samples": self._progress.samples,
            "weights": checksum(self._model.state_dict()),
            "difference": verify_weight_sync(self._model),
            "seconds": self.seconds,
            "evaluation_loss": evaluation_loss,
            "evaluation_samples": evaluation_samples,
        }

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add up the seconds that something takes."""
        begun = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begun


def _memory(device: torch.device) -> int:
    """The most that this rank has used: of the GPU, or of the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    import resource  # here, since Windows has none

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

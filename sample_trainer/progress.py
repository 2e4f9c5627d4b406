"""How far a run has come: what it measures, what it decides from that, and what it writes down.

What is averaged over the ranks is averaged when it is logged and not before: that is a collective.
"""

import logging
import resource
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from config import Config, Evaluation
from distributed import verify_weight_sync
from run_folder import Kind, RunFolder
from states import checksum
from torch import Tensor, nn

log = logging.getLogger("trainer")

NO_PROGRESS = "no progress in {} evaluations"
TOLD_EVERY = 10.0  # seconds


@dataclass
class Progress:
    """How far a run has come, and what it has to know when it goes on from a checkpoint. Counted by the loop as it
    takes batches, on all ranks together: samplers are ahead of it where workers fetch."""

    step: int = 0
    epoch: int = 0
    batches: int = 0
    """That each rank has taken of this epoch."""
    samples: int = 0
    """That all ranks together have taken of this epoch, which is what another number of ranks goes on from."""
    trained: int = 0
    """Samples that all ranks together were trained on."""
    best_loss: float = float("inf")
    evaluations_since: int = 0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in asdict(self).items():
            setattr(self, name, type(value)(state[name]))

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

    def tell_resumed(self, config: Config) -> bool:
        """Say where a run goes on, or that it is complete; whether it goes on."""
        patience = config.evaluation.patience
        reason = ""
        if self.epoch >= config.train.epochs:
            reason = f"train.epochs={config.train.epochs}"
        elif patience is not None and self.evaluations_since >= patience:
            reason = f"stopped early, {NO_PROGRESS.format(self.evaluations_since)}"
        if reason:
            log.info("complete at step %d: %s; there is nothing left to train", self.step, reason)
        else:
            log.info("resumes at step %d, epoch %d", self.step, self.epoch + 1)
        return not reason


class Meter:
    """Collects the steps since the last line of metrics.jsonl, and rank 0 writes the lines."""

    def __init__(self, model: nn.Module, progress: Progress, device: torch.device) -> None:
        self._model = model
        self._progress, self._device = progress, device
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None
        self._lr = 0.0
        self._told = time.monotonic()
        self.run: RunFolder | None = None
        """While the run lasts."""
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.restart()

    def add(self, loss: Tensor, norm: Tensor | None, lr: float) -> None:
        """One step: this rank's loss, and the norm of the gradient where it was clipped."""
        self._losses.append(loss)
        self._norm, self._lr = norm, lr

    def restart(self) -> None:
        """Take the time from here on: what came before was no training."""
        self._before, self._begun = self._progress.trained, time.perf_counter()

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
            samples=self._progress.trained,
            samples_per_second=(self._progress.trained - self._before) / seconds,
            seconds=seconds,
            memory_bytes=_memory(self._device),
        )
        if time.monotonic() - self._told > TOLD_EVERY:
            self._told = time.monotonic()
            log.info("step %d: loss %.3f", self._progress.step, self.last_loss)
        self._losses = []
        self.restart()

    def _gradient_norm(self) -> float | None:
        """Of the last step: its gradients are still there."""
        if self._norm is None:
            norms = [each.grad.norm() for each in self._model.parameters() if each.grad is not None]
            return float(torch.stack(norms).norm()) if norms else None
        return float(self._norm)

    def note(self, kind: Kind, **values: Any) -> None:
        """Rank 0 writes it down; every rank calls it."""
        if self.run:
            self.run.add(kind, self._progress.step, self._progress.epoch, values)

    def tell_evaluation(self, loss: float, accuracy: float, targets: float) -> None:
        """For whoever watches, and for the run folder."""
        log.info("held-out loss %.3f, accuracy %.3f over %d targets", loss, accuracy, targets)
        self.note("evaluation", evaluation_loss=loss, evaluation_accuracy=accuracy)

    def tell_epoch(self) -> None:
        epoch, step = self._progress.epoch, self._progress.step
        if self.last_loss is None:
            log.info("epoch %d: there is nothing left to train after step %d", epoch, step)
        else:
            log.info("epoch %d: loss %.3f at step %d", epoch, self.last_loss, step)

    def stop_early(self) -> None:
        """Say so, and let run.json say so."""
        log.info("stopped early: %s", NO_PROGRESS.format(self._progress.evaluations_since))
        if self.run:
            self.run.ending = "stopped early"

    def summary(self, evaluation_loss: float | None) -> dict[str, Any]:
        """What this rank has come to; verified against rank 0."""
        return {
            "rank": dist.get_rank(),
            "world_size": dist.get_world_size(),
            "first_loss": self.first_loss,
            "last_loss": self.last_loss,
            "steps": self._progress.step,
            "samples": self._progress.trained,
            "weights": checksum(self._model.state_dict()),
            "difference": verify_weight_sync(self._model),
            "evaluation_loss": evaluation_loss,
        }


def _memory(device: torch.device) -> int:
    """The most that this rank has used: of the GPU, or of the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

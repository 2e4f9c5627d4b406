"""Saving and resuming on all ranks: what rank 0 writes of their state, and what every rank is given back.

Rank 0 alone reads and writes files: a node's disk may be its own. Whatever fails there is told to the other ranks,
which wait for it, so that all of them raise the same TrainerError. How a checkpoint lies on the disk is in
checkpoint_files.py.
"""

import logging
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import checkpoint_files as files
import torch
import torch.distributed as dist
from config import TrainerError
from distributed import on_rank_0, unpack, verify_equal
from states import State, on_cpu
from torch import nn

log = logging.getLogger("trainer")


class Checkpoints:
    """The checkpoints of a run: of the bare model, so that a file loads without DDP, of what is ``replicated`` on every
    rank besides (optimizer, schedule, scaler), and of rank 0's word on the progress. The last ``keep`` stay, and the
    best. Every rank has this, and calls the same methods in the same order."""

    def __init__(
        self, folder: Path, model: nn.Module, replicated: Mapping[str, Any], progress: Any, *, keep: int = 3
    ) -> None:
        self.folder, self._model, self._replicated, self._keep = folder, model, replicated, keep
        self._parts = {"model": model, **replicated, "progress": progress}

    # --- Saving -----------------------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        """Before training from a step on: make the folder, and remove what a save left that was killed. Raises
        TrainerError where it cannot be written, or holds later checkpoints, of another run."""

        def prepare() -> None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for unfinished in self.folder.glob("*.part"):
                unfinished.unlink()
            if later := [saved for saved in files.complete(self.folder) if files.step_of(saved) > step]:
                raise TrainerError(
                    f"{self.folder} holds {later[-1].name}, and this run starts at step {step}; resume from it, or "
                    "choose another folder"
                )

        on_rank_0(prepare, f"{self.folder} cannot be used for checkpoints")

    def save(self, step: int, *, best: bool = False) -> None:
        """Write a checkpoint, the best so far perhaps; no rank goes on before it is complete. Raises TrainerError where
        replicas differ, or it cannot be written; those that are complete are as they were."""
        states = {name: on_cpu(part.state_dict()) for name, part in self._parts.items()}
        # Not the buffers, which are rank 0's word: BatchNorm's averages differ between forwards, and DDP gives every
        # rank those of rank 0 before each.
        weights = {name: parameter.detach() for name, parameter in self._model.named_parameters()}
        verify_equal({"model": weights, **{name: states[name] for name in self._replicated}})
        content = partial(torch.save, {"step": step, "world_size": dist.get_world_size(), **states})
        on_rank_0(
            partial(files.write, self.folder, step, content, best=best, keep=self._keep),
            f"the checkpoint of step {step} cannot be written to {self.folder}",
        )

    # --- Resuming ---------------------------------------------------------------------------------------------

    def newest(self) -> Path | None:
        """The newest checkpoint of the folder, which alone is gone on from; None where there is none."""

        def look() -> bytes:
            whole = files.complete(self.folder)
            return str(whole[-1]).encode() if whole else b""

        checkpoint = on_rank_0(look, f"{self.folder} cannot be read")
        return Path(checkpoint.decode()) if checkpoint else None

    def load(self, checkpoint: Path) -> int:
        """Give every rank the state in a checkpoint, into host memory first; its step. Raises TrainerError, on every
        rank, where it is missing, corrupt, of another model, or lacks a part."""

        content = on_rank_0(partial(files.read, checkpoint), f"{checkpoint} cannot be read")
        with _fits(checkpoint, "it is no checkpoint"):
            state = unpack(content)
            step, ranks = state["step"], state["world_size"]
        if lacking := [name for name in self._parts if name not in state]:
            raise TrainerError(f"{checkpoint} has no state of: {', '.join(lacking)}")
        if unused := state.keys() - self._parts.keys() - {"step", "world_size"}:
            log.warning("not restored, since this run has none: %s", ", ".join(sorted(unused)))
        if ranks != (size := dist.get_world_size()):
            log.warning(
                f"{checkpoint.name} was written by {ranks} ranks and this run has {size}: the data goes on at the same "
                "sample, in other batches, so that results agree, but not to the bit"
            )
        for name, part in self._parts.items():
            with _fits(checkpoint, name):
                _restore(name, part, state[name])
        return int(step)


def _restore(name: str, part: Any, state: Any) -> None:
    if name == "model":
        _require_same_model(part.state_dict(), state)
    if name == "optimizer":
        _require_same_optimizer(part.state_dict(), state)
    part.load_state_dict(state)


@contextmanager
def _fits(checkpoint: Path, what: str) -> Iterator[None]:
    """Around what fails where a state has another form: the file may come from anywhere."""
    try:
        yield
    except _UNUSABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TrainerError(f"{checkpoint} does not fit this run: {what}: {reason}") from error


_UNUSABLE = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    pickle.UnpicklingError,
)
"""What torch raises for such a state."""


def _require_same_model(mine: State, saved: State) -> None:
    """Say in one line what torch would say in one for each tensor."""
    names = [*(name for name in mine if name not in saved), *(name for name in saved if name not in mine)]
    if names:
        owner = "the checkpoint" if names[0] in mine else "this model"
        raise ValueError(f"another model: {owner} has no {names[0]}; {len(names)} names differ")
    for name, tensor in mine.items():
        if tensor.shape != saved[name].shape:
            raise ValueError(
                f"another model: {name} is {tuple(saved[name].shape)} in the checkpoint and {tuple(tensor.shape)} here"
            )


def _require_same_optimizer(mine: State, saved: State) -> None:
    """torch takes another optimizer's state, and fails in the first step. A newer torch may know more settings."""
    for group, other in zip(mine["param_groups"], saved["param_groups"], strict=True):
        lacking, unknown = sorted(group.keys() - other.keys()), sorted(other.keys() - group.keys())
        if lacking and unknown:
            raise ValueError(f"another optimizer: the checkpoint has {unknown[0]}, and this one {lacking[0]}")

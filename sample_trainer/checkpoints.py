"""Saving and resuming on all ranks: what rank 0 writes of their state, and what every rank is given back.

The state is declared part by part (components.py). Rank 0 alone reads and writes files: a node's disk may be its own.
Whatever fails there is told to the other ranks, which wait for it, so that all of them raise the same TrainerError.
How a checkpoint lies on the disk is in checkpoint_files.py.
"""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import checkpoint_files as files
import torch
import torch.distributed as dist
from components import Component, Kind, State, on_cpu
from config import TrainerError
from distributed import gather, on_rank_0, pack, unpack, verify_equal

log = logging.getLogger("trainer")


class Checkpoints:
    """The checkpoints of a run. Every rank has this, and calls the same methods in the same order.

    Args:
        keep: how many to keep; the best is kept besides.
        asynchronous: whether the ranks go on as soon as the state is copied.
    """

    def __init__(
        self,
        folder: Path,
        components: Mapping[str, Component],
        *,
        keep: int = 3,
        asynchronous: bool = False,
    ) -> None:
        self.folder, self._components, self._keep = folder, components, keep
        self._thread = ThreadPoolExecutor(max_workers=1) if asynchronous else None
        self._writing: Callable[[], None] = _nothing
        self._failure = ""

    # --- Saving -----------------------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        """Before training from a step on: make the folder, and remove what a save left that was killed.

        Raises:
            TrainerError: it cannot be written, or it holds later checkpoints, of another run.
        """

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
        """Write a checkpoint; no rank goes on before it is complete, or at least copied.

        Args:
            best: whether it is the best so far.

        Raises:
            TrainerError: replicas differ, or it cannot be written, or the one before could not; those that are complete
                are as they were.
        """
        states: dict[str, Any] = {
            name: on_cpu(component.part.state_dict()) for name, component in self._components.items()
        }
        verify_equal({name: _replicated(part, states[name]) for name, part in self._components.items()})
        for name, component in self._components.items():
            if component.kind is Kind.PER_RANK:
                states[name] = [unpack(each) for each in gather(pack(states[name]))]
        self.finish()  # the one before
        self._failure = f"the checkpoint of step {step} cannot be written to {self.folder}"
        if dist.get_rank() == 0:
            # In a thread a copy, which training does not change.
            states = states if self._thread is None else copy.deepcopy(states)
            state = {"step": step, "world_size": dist.get_world_size(), **states}
            content = partial(torch.save, state)
            write = partial(files.write, self.folder, step, content, best=best, keep=self._keep)
            self._writing = write if self._thread is None else self._thread.submit(write).result
        if self._thread is None:
            self.finish()

    def finish(self) -> None:
        """Wait until the last one is complete; every rank calls it, at the end too.

        Raises:
            TrainerError: it could not be written.
        """
        writing, self._writing = self._writing, _nothing
        on_rank_0(writing, self._failure)

    # --- Resuming ---------------------------------------------------------------------------------------------

    def newest(self) -> Path | None:
        """The newest checkpoint of the folder, which alone is gone on from; None where there is none."""

        def look() -> bytes:
            whole = files.complete(self.folder)
            return str(whole[-1]).encode() if whole else b""

        checkpoint = on_rank_0(look, f"{self.folder} cannot be read")
        return Path(checkpoint.decode()) if checkpoint else None

    def load(self, checkpoint: Path) -> int:
        """Give every rank the state in a checkpoint, into host memory first; its step.

        Raises:
            TrainerError: on every rank: it is missing, corrupt, of another model, or lacks a component.
        """

        content = on_rank_0(partial(files.read, checkpoint), f"{checkpoint} cannot be read")
        with _fits(checkpoint, "it is no checkpoint"):
            state = unpack(content)
            step, ranks = state["step"], state["world_size"]
        if lacking := [name for name in self._components if name not in state]:
            raise TrainerError(f"{checkpoint} has no state of: {', '.join(lacking)}")
        self._tell_what_stays(checkpoint, state)
        for name, component in self._components.items():
            if component.kind is not Kind.PER_RANK or ranks == dist.get_world_size():
                with _fits(checkpoint, name):
                    _restore(name, component, state[name])
        return int(step)

    def _tell_what_stays(self, checkpoint: Path, state: State) -> None:
        """Rank 0 logs what is in a checkpoint and is not restored."""
        if dist.get_rank() != 0:
            return
        if unused := state.keys() - self._components.keys() - {"step", "world_size"}:
            log.warning("not restored, since this run has none: %s", ", ".join(sorted(unused)))
        if (ranks := state["world_size"]) != (size := dist.get_world_size()):
            per_rank = [name for name, part in self._components.items() if part.kind is Kind.PER_RANK]
            log.warning(
                f"{checkpoint.name} was written by {ranks} ranks and this run has {size}. Not restored, "
                f"as each rank had its own: {', '.join(per_rank) or 'nothing'}. The data goes on at the same sample, "
                "in other batches: results agree, but not to the bit. A stream goes on at the same batch of each rank, "
                "which repeats some samples or leaves some out"
            )


def _nothing() -> None:
    """In place of a checkpoint that is being written."""


def _replicated(component: Component, state: State) -> State:
    if component.kind is not Kind.REPLICATED:
        return {}
    return state if component.replicated is None else component.replicated()


def _restore(name: str, component: Component, state: Any) -> None:
    if component.kind is Kind.PER_RANK:
        state = _of_this_rank(state)
    if name == "model":
        _require_same_model(component.part.state_dict(), state)
    if name == "optimizer":
        _require_same_optimizer(component.part.state_dict(), state)
    component.part.load_state_dict(state)


@contextmanager
def _fits(checkpoint: Path, what: str) -> Iterator[None]:
    """Around what fails where a state has another form: the file may come from anywhere."""
    try:
        yield
    except _UNUSABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TrainerError(f"{checkpoint} does not fit this run: {what}: {reason}") from error


def _of_this_rank(states: Any) -> State:
    """This rank's; every rank looks whether there is one for each, so that all of them raise."""
    if not isinstance(states, list) or len(states) != dist.get_world_size():
        raise ValueError(f"it has no state for each of {dist.get_world_size()} ranks")
    return cast(State, states[dist.get_rank()])


_UNUSABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
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

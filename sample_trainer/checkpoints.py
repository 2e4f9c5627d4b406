"""Saving and resuming on all ranks: what rank 0 writes of their state, and what every rank is given back.

The state is declared part by part (components.py). Rank 0 alone reads and writes files: a node's disk may be its own.
Whatever fails there is told to the other ranks, which wait for it, so that all of them raise the same CheckpointError.
How a checkpoint lies on the disk is in checkpoint_files.py.
"""

from __future__ import annotations

import copy
import io
import logging
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import checkpoint_files
import torch
import torch.distributed as dist
from checkpoint_files import CheckpointError
from components import Component, Kind, State, on_cpu
from exchange import gather, on_rank_0, verify_equal
from manifest import Manifest, parse_manifest

log = logging.getLogger("trainer")


# --- Saving -------------------------------------------------------------------------------------------------


def begin(folder: Path, step: int) -> None:
    """Before training from a step on: make the folder, and remove what a save left that was killed.

    Raises:
        CheckpointError: it cannot be written, or it holds later checkpoints, of another run.
    """

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint_files.remove_unfinished(folder)
        later = [
            saved for saved in checkpoint_files.complete(folder) if checkpoint_files.step_of(saved) > step
        ]
        if later:
            raise CheckpointError(
                f"{folder} holds {later[-1].name}, and this run starts at step {step}; resume from it, or choose "
                "another folder"
            )

    on_rank_0(prepare, f"{folder} cannot be used for checkpoints")


@dataclass(frozen=True)
class Due:
    """A checkpoint that every rank has agreed to and rank 0 is to write."""

    folder: Path
    step: int
    world_size: int
    kinds: Mapping[str, str]
    states: Mapping[str, Any]
    """By component; of all ranks for one that is PER_RANK."""
    texts: Mapping[str, str]
    keep: int
    best: bool

    @property
    def failure(self) -> str:
        """What it means if the disk does not take it."""
        return f"the checkpoint of step {self.step} cannot be written to {self.folder}"

    def copied(self) -> Due:
        """The same, which training on does not change."""
        return replace(self, states=copy.deepcopy(self.states))

    def write(self) -> None:
        """Write it, and let ``latest`` name it; on rank 0."""
        files: dict[str, checkpoint_files.Write] = {
            f"{name}.pt": partial(torch.save, state) for name, state in self.states.items()
        }
        for name, text in self.texts.items():
            files[name] = partial(_write_text, text)
        whole = checkpoint_files.write(self.folder, self.step, self.world_size, self.kinds, files)
        checkpoint_files.point(self.folder, "latest", whole)
        if self.best:
            checkpoint_files.point(self.folder, "best", whole)
        checkpoint_files.remove_old(self.folder, self.keep)


def save(due: Due) -> None:
    """Write a checkpoint; no rank goes on before it is complete.

    Raises:
        CheckpointError: it cannot be written; the checkpoints before it are as they were.
    """
    on_rank_0(due.write, due.failure)


def prepare(
    folder: Path,
    step: int,
    components: Mapping[str, Component],
    keep: int = 3,
    *,
    best: bool = False,
    texts: Mapping[str, str] | None = None,
) -> Due:
    """Verify that replicas are equal, and gather what each rank has for itself; every rank calls it.

    Args:
        keep: how many to keep; the best is kept besides.
        best: whether ``best`` names it from now on.
        texts: more files, by name, that lie beside the weights: a vocabulary, names of labels.

    Raises:
        CheckpointError: replicas differ.
    """
    states: dict[str, Any] = {name: on_cpu(component.state_dict()) for name, component in components.items()}
    verify_equal({name: _replicated(component, states[name]) for name, component in components.items()})
    for name, component in components.items():
        if component.kind is Kind.PER_RANK:
            states[name] = [_unpack(each) for each in gather(_pack(states[name]))]
    kinds = {name: component.kind.value for name, component in components.items()}
    return Due(folder, step, dist.get_world_size(), kinds, states, texts or {}, keep, best)


def _replicated(component: Component, state: State) -> State:
    if component.kind is not Kind.REPLICATED:
        return {}
    return state if component.replicated is None else component.replicated()


def _write_text(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


# --- Resuming -----------------------------------------------------------------------------------------------


def find(folder: Path) -> Path | None:
    """The newest checkpoint of a folder, or the folder itself where it is one; None where there is none."""

    def look() -> bytes:
        if (folder / checkpoint_files.MANIFEST).exists():
            return str(folder).encode()
        whole = checkpoint_files.complete(folder)
        return str(whole[-1]).encode() if whole else b""

    checkpoint = on_rank_0(look, f"{folder} cannot be read")
    return Path(checkpoint.decode()) if checkpoint else None


def load_latest(
    folder: Path, components: Mapping[str, Component], texts: Mapping[str, str] | None = None
) -> int | None:
    """Go on from the newest checkpoint; its step, or None where there is none.

    Args:
        texts: what has to lie beside the weights, by name, where anything of that name does.

    Raises:
        CheckpointError: it cannot be used. An older one is not taken instead, which nobody would notice.
    """
    checkpoint = find(folder)
    return None if checkpoint is None else load(checkpoint, components, texts)


def load(
    checkpoint: Path, components: Mapping[str, Component], texts: Mapping[str, str] | None = None
) -> int:
    """Give every rank the state in a checkpoint, into host memory first; its step. Texts: see ``load_latest``.

    Raises:
        CheckpointError: on every rank: it is missing, corrupt, of another model, or lacks a component.
    """
    content = on_rank_0(lambda: _manifest_bytes(checkpoint), f"{checkpoint} cannot be read")
    manifest = parse_manifest(content)
    _tell_what_stays(checkpoint, manifest, components)
    for name, text in (texts or {}).items():
        # Of the same shapes, maybe, but each number means something else.
        if name in manifest.files and _content(checkpoint, name, manifest) != text.encode():
            raise CheckpointError(f"{checkpoint} does not fit this run: its {name} is another")
    for name, component in components.items():
        if component.kind is not Kind.PER_RANK or manifest.world_size == dist.get_world_size():
            _restore(checkpoint, name, component, _content(checkpoint, f"{name}.pt", manifest))
    return manifest.step


def _content(checkpoint: Path, name: str, manifest: Manifest) -> bytes:
    read = partial(checkpoint_files.read_file, checkpoint, name, manifest)
    return on_rank_0(read, f"{checkpoint} cannot be read")


def _manifest_bytes(checkpoint: Path) -> bytes:
    """The manifest's text, known to be right."""
    if not checkpoint.is_dir():
        raise CheckpointError(f"there is no checkpoint {checkpoint}")
    checkpoint_files.read_manifest(checkpoint)
    return (checkpoint / checkpoint_files.MANIFEST).read_bytes()


def _tell_what_stays(checkpoint: Path, manifest: Manifest, components: Mapping[str, Component]) -> None:
    """Log what will not be restored; refuse where something that this run needs is lacking."""
    if lacking := [name for name in components if name not in manifest.kinds]:
        raise CheckpointError(f"{checkpoint} has no state of: {', '.join(lacking)}")
    if dist.get_rank() == 0:
        for line in what_stays(checkpoint, manifest, components):
            log.warning(line)


def what_stays(checkpoint: Path, manifest: Manifest, components: Mapping[str, Component]) -> Iterator[str]:
    """Lines about what is in a checkpoint and is not restored."""
    if unused := [name for name in manifest.kinds if name not in components]:
        yield f"not restored, since this run has none: {', '.join(unused)}"
    size = dist.get_world_size()
    if manifest.world_size != size:
        per_rank = [name for name, component in components.items() if component.kind is Kind.PER_RANK]
        yield (
            f"{checkpoint.name} was written by {manifest.world_size} ranks and this run has {size}. Not restored, as "
            f"each rank had its own: {', '.join(per_rank) or 'nothing'}. The data goes on at the same sample, in "
            "other batches: results agree, but not to the bit. A stream goes on at the same batch of each rank, which "
            "repeats some samples or leaves some out"
        )


def _restore(checkpoint: Path, name: str, component: Component, content: bytes) -> None:
    try:
        state = _unpack(content)
        if component.kind is Kind.PER_RANK:
            state = _of_this_rank(state)
        if name == "model":
            _require_same_model(component.state_dict(), state)
        if name == "optimizer":
            _require_same_optimizer(component.state_dict(), state)
        component.load_state_dict(state)
    except _UNUSABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(f"{checkpoint} does not fit this run: {name}: {reason}") from error


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
"""What torch raises for a state that has another form; the file may come from anywhere."""


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


def _pack(state: Any) -> bytes:
    packed = io.BytesIO()
    torch.save(state, cast(BinaryIO, packed))
    return packed.getvalue()


def _unpack(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)

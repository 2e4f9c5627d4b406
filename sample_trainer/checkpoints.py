"""Saving and resuming on all ranks: what rank 0 writes of their state, and what every rank is given back.

The state is declared part by part (components.py). Rank 0 alone reads and writes files: a node's disk may be its own.
Whatever fails there is told to the other ranks, which wait for it, so that all of them raise the same CheckpointError.
How a checkpoint lies on the disk is in checkpoint_files.py.
"""

from __future__ import annotations

import io
import json
import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import checkpoint_files
import torch
import torch.distributed as dist
from checkpoint_files import CheckpointError
from components import Component, Kind, State, checksum, leaves, on_cpu
from exchange import gather, on_rank_0, to_tensor
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
        later = [one for one in checkpoint_files.complete(folder) if checkpoint_files.step_of(one) > step]
        if later:
            raise CheckpointError(
                f"{folder} holds {later[-1].name}, and this run begins at step {step}; resume from it, or choose "
                "another folder"
            )

    on_rank_0(prepare, f"{folder} cannot be used for checkpoints")


def save(
    folder: Path,
    step: int,
    components: Mapping[str, Component],
    keep: int = 3,
    *,
    best: bool = False,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint; no rank goes on before it is complete.

    Args:
        keep: how many to keep; the best is kept besides.
        best: whether ``best`` names it from now on.
        texts: more files, by name, that lie beside the weights: a vocabulary, names of labels.

    Raises:
        CheckpointError: replicas differ, or it cannot be written; the checkpoints before it are as they were.
    """
    states = {name: one.state_dict() for name, one in components.items()}
    verify_replicated({name: _replicated(one, states[name]) for name, one in components.items()})
    files = _contents(components, states) | {name: _text(text) for name, text in (texts or {}).items()}
    kinds = {name: one.kind.value for name, one in components.items()}

    def write() -> None:
        checkpoint = checkpoint_files.write(folder, step, dist.get_world_size(), kinds, files)
        checkpoint_files.point(folder, "latest", checkpoint)
        if best:
            checkpoint_files.point(folder, "best", checkpoint)
        checkpoint_files.remove_old(folder, keep)

    on_rank_0(write, f"the checkpoint of step {step} cannot be written to {folder}")
    return folder / checkpoint_files.folder_name(step)


def _contents(
    components: Mapping[str, Component], states: Mapping[str, State]
) -> dict[str, checkpoint_files.Write]:
    """What rank 0 writes, by the file's name; every rank takes part in gathering."""
    contents: dict[str, checkpoint_files.Write] = {}
    for name, one in components.items():
        state: Any = on_cpu(states[name])
        if one.kind is Kind.PER_RANK:
            state = [_unpack(each) for each in gather(_pack(state))]
        contents[f"{name}.pt"] = partial(torch.save, state)
    return contents


def _text(text: str) -> checkpoint_files.Write:
    return lambda file: file.write(text.encode())


# --- Equality -----------------------------------------------------------------------------------------------


def _replicated(one: Component, state: State) -> State:
    if one.kind is not Kind.REPLICATED:
        return {}
    return state if one.replicated is None else one.replicated()


def verify_replicated(states: Mapping[str, State]) -> None:
    """Compare this rank's states with rank 0's to the bit, by digests: 32 bytes are sent, whatever their size.

    Raises:
        CheckpointError: on every rank, where one differs; it names the first difference.
    """
    mine = to_tensor(bytes.fromhex(checksum(states)))
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    if all(torch.equal(every[0], one) for one in every):
        return
    digests = {name: checksum(leaf) for name, leaf in leaves(states)}
    gathered = [json.loads(one) for one in gather(json.dumps(digests).encode())]
    on_rank_0(partial(_tell_difference, gathered), "the replicas cannot be compared")


def _tell_difference(gathered: Sequence[Mapping[str, str]]) -> None:
    """Raise, and say what differs first."""
    for name in gathered[0]:
        if ranks := [rank for rank, one in enumerate(gathered) if one.get(name) != gathered[0][name]]:
            raise CheckpointError(
                f"nothing is saved: {name} is not the same on every rank (rank {ranks[0]} has another than rank 0)"
            )
    raise CheckpointError("nothing is saved: some rank has state that rank 0 has not")


# --- Resuming -----------------------------------------------------------------------------------------------


def find(folder: Path) -> Path | None:
    """The newest checkpoint of a folder, or the folder itself where it is one; None where there is none."""

    def look() -> bytes:
        if (folder / checkpoint_files.MANIFEST).exists():
            return str(folder).encode()
        whole = checkpoint_files.complete(folder)
        return str(whole[-1]).encode() if whole else b""

    found = on_rank_0(look, f"{folder} cannot be read")
    return Path(found.decode()) if found else None


def load_latest(folder: Path, components: Mapping[str, Component]) -> int | None:
    """Go on from the newest checkpoint; its step, or None where there is none.

    Raises:
        CheckpointError: it cannot be used. An older one is not taken instead, which nobody would notice.
    """
    found = find(folder)
    return None if found is None else load(found, components)


def load(checkpoint: Path, components: Mapping[str, Component]) -> int:
    """Give every rank the state in a checkpoint, into host memory first; its step.

    Raises:
        CheckpointError: on every rank: it is missing, corrupt, of another model, or lacks a component.
    """
    told = on_rank_0(lambda: _manifest_bytes(checkpoint), f"{checkpoint} cannot be read")
    manifest = parse_manifest(told)
    _tell_what_stays(checkpoint, manifest, components)
    for name, one in components.items():
        if one.kind is not Kind.PER_RANK or manifest.world_size == dist.get_world_size():
            read = partial(checkpoint_files.read_file, checkpoint, f"{name}.pt", manifest)
            content = on_rank_0(read, f"{checkpoint} cannot be read")
            _restore(checkpoint, name, one, content)
    return manifest.step


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
        own = [name for name, one in components.items() if one.kind is Kind.PER_RANK]
        yield (
            f"{checkpoint.name} was written by {manifest.world_size} ranks and this run has {size}. Not restored, since "
            f"each rank had its own: {', '.join(own) or 'nothing'}. The data goes on at the same sample, in batches that "
            "are put together otherwise, so results agree but not to the bit"
        )


def _restore(checkpoint: Path, name: str, one: Component, content: bytes) -> None:
    try:
        state = _unpack(content)
        if one.kind is Kind.PER_RANK:
            state = state[dist.get_rank()]
        if name == "model":
            _require_same_model(one.state_dict(), state)
        one.load_state_dict(state)
    except _UNUSABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(f"{checkpoint} does not fit this run: {name}: {reason}") from error


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


def _pack(state: Any) -> bytes:
    packed = io.BytesIO()
    torch.save(state, cast(BinaryIO, packed))
    return packed.getvalue()


def _unpack(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)

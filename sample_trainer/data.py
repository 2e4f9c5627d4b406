"""The data: two tasks that need no download, and text of the user's own. Nothing here knows of ranks.

    language    the next byte of a text    pydoc_data.topics, a file, a folder of files, hf:NAME
    digits      which digit an image shows  scikit-learn's 8x8 digits

A sample is a pair of tensors, inputs and targets, of the same shapes for every sample. Targets that are IGNORED
are not learned from and not counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from checkpoint_files import write_whole
from config import Data, TrainerError
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

IGNORED = -100  # as a target; what torch's cross_entropy leaves out by default

Sample = tuple[Tensor, Tensor]


class Samples(Protocol):
    """What every dataset here can do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


@dataclass
class Material:
    """What is trained on and evaluated on."""

    training: Samples
    held_out: Samples


class Text(Dataset[Sample]):
    """Consecutive pieces of a text as bytes: ``context`` of them, and the same moved on by one as the target."""

    def __init__(self, text: Tensor, context: int) -> None:
        self.text = text
        self.context = context

    def __len__(self) -> int:
        return max(0, len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> Sample:
        start = index * self.context
        piece = self.text[start : start + self.context + 1].long()
        return piece[:-1], piece[1:]


def load(data: Data, folder: Path) -> Material:
    """Read what the configuration names.

    Args:
        folder: where text lies that is to be mapped and has no file of its own; see ``write_text_file``.

    Raises:
        TrainerError: there is nothing to learn from.
    """
    material = {"language": _language, "digits": _digits}[data.task](data, folder)
    if not len(material.training):
        raise TrainerError(f"data.source {data.source} has no sample to train on")
    if not len(material.held_out):
        raise TrainerError(f"data.source {data.source} has no sample to evaluate on; raise data.held_out")
    return material


# --- Language -------------------------------------------------------------------------------------------------


def _language(data: Data, folder: Path) -> Material:
    text = _mapped(text_file(data, folder)) if data.strategy == "memory_mapped" else _bytes(read_text(data))
    cut = len(text) - int(len(text) * data.held_out)
    return Material(Text(text[:cut], data.context), Text(text[cut:], data.context))


def read_text(data: Data) -> bytes:
    """All of the text: 466 kB of English that every Python carries, or the user's own."""
    if data.source == "builtin":
        return "\n".join(_topics().values()).encode()
    if data.source.startswith("hf:"):
        return "\n".join(_hugging_face(data.source)).encode()
    return b"\n".join(file.read_bytes() for file in _files(Path(data.source)))


def _bytes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)


def _topics() -> Mapping[str, str]:
    import pydoc_data.topics

    return pydoc_data.topics.topics


def _files(place: Path) -> Sequence[Path]:
    """The file itself, or the files of a folder, in the same order on every host."""
    try:
        return (
            sorted(path for path in place.rglob("*") if path.is_file())
            if place.is_dir()
            else [_readable(place)]
        )
    except OSError as error:
        raise TrainerError(f"data.source {place}: {error.strerror}") from None


def _readable(file: Path) -> Path:
    """The file, if it is one: a pipe would keep a rank waiting, and a device has no end."""
    if file.exists() and not file.is_file():
        raise TrainerError(f"data.source {file} is neither a file nor a folder")
    with file.open("rb"):
        return file


def text_file(data: Data, folder: Path) -> Path:
    """The file that is mapped: the user's own, or one that holds the text of a source that is no file."""
    source = Path(data.source)
    if source.is_file():
        return source
    digest = hashlib.sha256(data.source.encode()).hexdigest()
    return folder / f"text-{digest[:8]}.bin"  # a run folder may see another source the next time


def write_text_file(data: Data, folder: Path) -> None:
    """Write the text that is to be mapped, if it has no file of its own. For one rank: the others map it."""
    file = text_file(data, folder)
    if not file.exists():
        write_whole(file, read_text(data))


def _mapped(file: Path) -> Tensor:
    """A file as a tensor that is read from the disk where it is touched, and lies in memory once for all ranks."""
    size = file.stat().st_size
    return torch.from_file(str(file), shared=False, size=size, dtype=torch.uint8) if size else _bytes(b"")


def _hugging_face(source: str) -> Iterable[str]:
    """The column ``text`` of each row."""
    name = source.removeprefix("hf:")
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TrainerError(f"data.source {source} needs the package datasets: pip install datasets") from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(name, split="train")
    except (OSError, ValueError) as error:
        raise TrainerError(f"data.source {source} cannot be loaded: {' '.join(str(error).split())}") from None
    try:
        return [str(row["text"]) for row in rows]
    except KeyError as lacking:
        raise TrainerError(f"data.source {source} has no column {lacking}") from None


# --- Digits ---------------------------------------------------------------------------------------------------


def _digits(data: Data, folder: Path) -> Material:
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise TrainerError("data.task=digits needs scikit-learn: pip install scikit-learn") from None
    digits = load_digits()
    images = torch.tensor(digits.images.tolist()).div(16).unsqueeze(1)
    labels = torch.tensor(digits.target.tolist())
    cut = len(labels) - int(len(labels) * data.held_out)
    return Material(TensorDataset(images[:cut], labels[:cut]), TensorDataset(images[cut:], labels[cut:]))

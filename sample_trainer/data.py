"""The data: the next byte of a text, which needs no download or is the user's own. Nothing here knows of ranks.

A sample is a pair of tensors, inputs and targets, of the same shapes for every sample. Targets that are IGNORED
are not learned from and not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from config import Data, TrainerError
from torch import Tensor
from torch.utils.data import Dataset

IGNORED = -100  # as a target; what torch's cross_entropy leaves out by default

Sample = tuple[Tensor, Tensor]


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


@dataclass
class Material:
    """What is trained on and evaluated on."""

    training: Text
    held_out: Text


def load(data: Data) -> Material:
    """Read what the configuration names. Raises TrainerError where there is nothing to learn from."""
    content = read_text(data)
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0)
    cut = len(text) - int(len(text) * data.held_out)
    material = Material(Text(text[:cut], data.context), Text(text[cut:], data.context))
    if not len(material.training):
        raise TrainerError(f"data.source {data.source} has no sample to train on")
    if not len(material.held_out):
        raise TrainerError(f"data.source {data.source} has no sample to evaluate on; raise data.held_out")
    return material


def read_text(data: Data) -> bytes:
    """All of the text: 466 kB of English that every Python carries, or the user's own."""
    if data.source == "builtin":
        import pydoc_data.topics

        return "\n".join(pydoc_data.topics.topics.values()).encode()
    return b"\n".join(file.read_bytes() for file in _files(Path(data.source)))


def _files(place: Path) -> Sequence[Path]:
    """The file itself, or the files of a folder, in the same order on every host."""
    try:
        return sorted(filter(Path.is_file, place.rglob("*"))) if place.is_dir() else [_readable(place)]
    except OSError as error:
        raise TrainerError(f"data.source {place}: {error.strerror}") from None


def _readable(file: Path) -> Path:
    """The file, if it is one: a pipe would keep a rank waiting, and a device has no end."""
    if file.exists() and not file.is_file():
        raise TrainerError(f"data.source {file} is neither a file nor a folder")
    with file.open("rb"):
        return file

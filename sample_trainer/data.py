"""The data: three tasks that need no download, and text of the user's own. Nothing here knows of ranks.

    language    the next byte of a text      pydoc_data.topics, a file, a folder of files, hf:NAME
    classes     which topic a passage is of  pydoc_data.topics, a folder with a folder for each class, hf:NAME
    digits      which digit an image shows   scikit-learn's 8x8 digits

A sample is a pair of tensors, inputs and targets, of the same shapes for every sample. Targets that are IGNORED
are not learned from and not counted.
"""

from __future__ import annotations

import collections
import hashlib
import json
import re
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
VOCABULARY = 4000  # words that the classifier knows
CLASSES = 8  # topics of the built-in text that are long enough to learn from

Sample = tuple[Tensor, Tensor]


class Samples(Protocol):
    """What every dataset here can do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


@dataclass
class Material:
    """What is trained on and evaluated on, and what somebody needs who uses the weights."""

    training: Samples
    held_out: Samples
    outputs: int
    """Bytes or classes between which the model chooses."""
    inputs: int = 256
    """Different bytes, or words."""
    vocabulary: str = "{}"
    """JSON, saved beside the weights: how inputs become numbers, and what the numbers that come out mean."""


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
    material = {"language": _language, "classes": _classes, "digits": _digits}[data.task](data, folder)
    if not len(material.training):
        raise TrainerError(f"data.source {data.source} has no sample to train on")
    if not len(material.held_out):
        raise TrainerError(f"data.source {data.source} has no sample to evaluate on; raise data.held_out")
    if material.outputs < 2:
        raise TrainerError(f"data.source {data.source} has one class only; it takes a folder for each class")
    return material


# --- Language -------------------------------------------------------------------------------------------------


def _language(data: Data, folder: Path) -> Material:
    text = _mapped(text_file(data, folder)) if data.strategy == "memory_mapped" else _bytes(read_text(data))
    cut = len(text) - int(len(text) * data.held_out)
    vocabulary = json.dumps({"kind": "bytes", "encoding": "utf-8"})
    return Material(
        Text(text[:cut], data.context), Text(text[cut:], data.context), 256, vocabulary=vocabulary
    )


def read_text(data: Data) -> bytes:
    """All of the text: 466 kB of English that every Python carries, or the user's own."""
    if data.source == "builtin":
        return "\n".join(_topics().values()).encode()
    if data.source.startswith("hf:"):
        return "\n".join(text for (text,) in _hugging_face(data.source, "text")).encode()
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


def _hugging_face(source: str, *columns: str) -> Iterable[Sequence[str]]:
    """These columns of each row."""
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
        return [[str(row[column]) for column in columns] for row in rows]
    except KeyError as lacking:
        raise TrainerError(f"data.source {source} has no column {lacking}") from None


# --- Classes --------------------------------------------------------------------------------------------------


def _classes(data: Data, folder: Path) -> Material:
    passages = [
        (label, words) for label, text in _labelled_text(data) for words in _passages(text, data.context)
    ]
    labels = sorted({label for label, _ in passages})
    # Every n-th passage is held out, so that each class is in both parts.
    every = round(1 / data.held_out) if data.held_out else len(passages) + 1
    training = [passage for number, passage in enumerate(passages) if (number + 1) % every]
    held_out = [passage for number, passage in enumerate(passages) if not (number + 1) % every]
    # From the training part alone, and with ties in alphabetical order: the same on every rank.
    counts = collections.Counter(word for _, words in training for word in words)
    known = sorted(counts, key=lambda word: (-counts[word], word))[:VOCABULARY]
    number_of = {word: number + 1 for number, word in enumerate(known)}  # 0: unknown, or no word at all
    return Material(
        _labelled(training, labels, number_of, data.context),
        _labelled(held_out, labels, number_of, data.context),
        outputs=len(labels),
        inputs=len(known) + 1,
        vocabulary=json.dumps({"kind": "words", "words": known, "labels": labels}),
    )


def _labelled_text(data: Data) -> Iterable[tuple[str, str]]:
    """Texts and what each of them is about."""
    if data.source == "builtin":
        topics = _topics()
        longest = sorted(topics, key=lambda name: (-len(topics[name]), name))[:CLASSES]
        return [(name, topics[name]) for name in longest]
    if data.source.startswith("hf:"):
        return [(label, text) for label, text in _hugging_face(data.source, "label", "text")]
    return [(file.parent.name, file.read_text(errors="replace")) for file in _files(Path(data.source))]


def _passages(text: str, length: int) -> Iterable[list[str]]:
    words = re.findall(r"[a-z]+", text.lower())
    return (words[start : start + length] for start in range(0, len(words), length))


def _labelled(
    passages: Sequence[tuple[str, list[str]]],
    labels: Sequence[str],
    number_of: Mapping[str, int],
    length: int,
) -> TensorDataset:
    inputs = torch.zeros(len(passages), length, dtype=torch.long)
    for row, (_, words) in enumerate(passages):
        inputs[row, : len(words)] = torch.tensor([number_of.get(word, 0) for word in words], dtype=torch.long)
    return TensorDataset(
        inputs, torch.tensor([labels.index(label) for label, _ in passages], dtype=torch.long)
    )


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
    vocabulary = json.dumps(
        {"kind": "images", "scale": 1 / 16, "labels": [str(digit) for digit in range(10)]}
    )
    return Material(
        TensorDataset(images[:cut], labels[:cut]),
        TensorDataset(images[cut:], labels[cut:]),
        10,
        vocabulary=vocabulary,
    )

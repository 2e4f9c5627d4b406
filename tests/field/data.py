"""Random data in the formats that public scripts read; each function makes one data set at a place.

The content is the same in every run. NumPy and Pillow are imported where they are used: the manifest is read without.
"""

import gzip
import json
import pickle
import random
import struct
from pathlib import Path
from typing import Any


def mnist(at: Path, train: int = 96, test: int = 40, name: str = "MNIST") -> None:
    """torchvision's MNIST or FashionMNIST, raw and gzipped."""
    raw = at / name / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", train), ("t10k", test)):
        images = struct.pack(">IIII", 2051, count, 28, 28) + random.randbytes(count * 784)
        labels = struct.pack(">II", 2049, count) + bytes(random.choices(range(10), k=count))
        for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
            (raw / f"{part}-{kind}-ubyte").write_bytes(content)
            (raw / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))


def cifar(at: Path, classes: int = 10, train: int = 100, test: int = 40) -> None:
    """torchvision's CIFAR10 or CIFAR100."""
    import numpy

    folder = at / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
    folder.mkdir(parents=True)
    parts = [(f"data_batch_{part}", train // 5) for part in range(1, 6)] + [("test_batch", test)]
    for part, count in parts if classes == 10 else [("train", train), ("test", test)]:
        pixels = numpy.frombuffer(random.randbytes(count * 3072), dtype=numpy.uint8).reshape(count, 3072)
        labels = random.choices(range(classes), k=count)
        content = {"data": pixels, "labels": labels, "fine_labels": labels, "coarse_labels": labels}
        (folder / part).write_bytes(pickle.dumps(content))
    names = [f"class{number}" for number in range(classes)]
    meta = pickle.dumps({"label_names": names, "fine_label_names": names})
    (folder / ("batches.meta" if classes == 10 else "meta")).write_bytes(meta)
    archive = "cifar-10-python.tar.gz" if classes == 10 else "cifar-100-python.tar.gz"
    (at / archive).write_bytes(b"")


def folder(at: Path) -> None:
    """An empty folder."""
    at.mkdir(parents=True, exist_ok=True)


def text(at: Path, lines: int = 64, words: int = 12, vocabulary: int = 200, content: str = "") -> None:
    """Lines of random words, or this content."""
    at.parent.mkdir(parents=True, exist_ok=True)
    sentences = [
        " ".join(f"w{random.randrange(vocabulary)}" for _ in range(random.randint(words // 2, words)))
        for _ in range(lines)
    ]
    at.write_text(content or "\n".join(sentences) + "\n")


def images(
    at: Path,
    count: int = 16,
    classes: int = 0,
    size: int = 32,
    kind: str = "jpg",
    values: tuple[int, ...] = (),
    names: str = "{number}",
    labels: tuple[str, ...] = (),
) -> None:
    """Random pictures; with classes or labels, so many in a folder each; with values, masks of these."""
    import numpy
    from PIL import Image

    folders = [at / label for label in labels or [f"class{number}" for number in range(classes)]] or [at]
    for place in folders:
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            shape = (size, size) if values else (size, size, 3)
            pixels = random.choices(values or range(256), k=size * size * (1 if values else 3))
            picture = Image.fromarray(numpy.array(pixels, dtype=numpy.uint8).reshape(shape))
            picture.save(place / f"{names.format(number=number)}.{kind}")


def array(at: Path, shape: list[int], below: int = 0, dtype: str = "float32", count: int = 0) -> None:
    """A NumPy array: integers below a number, or floats of a normal distribution; with a count, so many in a folder."""
    import numpy

    places = [at / f"{number}.npy" for number in range(count)] or [at]
    generator = numpy.random.default_rng(0)
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        values = generator.integers(below, size=shape) if below else generator.normal(size=shape)
        numpy.save(place, values.astype(dtype))


def table(
    at: Path, columns: dict[str, Any], rows: int = 64, separator: str = ",", header: bool = True
) -> None:
    """A CSV file; a column is given as a list of values to choose from, a number below which, or "float" or "words"."""
    at.parent.mkdir(parents=True, exist_ok=True)
    lines = [separator.join(columns)] if header else []
    for _ in range(rows):
        lines.append(separator.join(str(value_of(kind)) for kind in columns.values()))
    at.write_text("\n".join(lines) + "\n")


def value_of(kind: Any) -> Any:
    if isinstance(kind, list):
        return random.choice(kind)
    if kind == "float":
        return round(random.gauss(0, 1), 4)
    if kind == "words":
        return " ".join(f"w{random.randrange(200)}" for _ in range(random.randint(4, 12)))
    return random.randrange(kind)


def records(at: Path, fields: dict[str, Any], rows: int = 64, lines: bool = True) -> None:
    """JSON records, one a line or as a list; fields as the columns of a table."""
    at.parent.mkdir(parents=True, exist_ok=True)
    made = [{name: value_of(kind) for name, kind in fields.items()} for _ in range(rows)]
    at.write_text("\n".join(map(json.dumps, made)) + "\n" if lines else json.dumps(made))


def coco(at: Path, pictures: str, count: int = 16, size: int = 64, categories: int = 3) -> None:
    """Annotations of random boxes in COCO's format for the pictures 0.jpg, 1.jpg, ... of a folder beside it."""
    boxes = [(random.randrange(size // 2), random.randrange(size // 2)) for _ in range(count)]
    side = size // 3
    content = {
        "images": [
            {"id": number, "file_name": f"{pictures}{number}.jpg", "height": size, "width": size}
            for number in range(count)
        ],
        "annotations": [
            {
                "id": number + 1,
                "image_id": number,
                "category_id": 1 + number % categories,
                "bbox": [left, top, side, side],
                "area": side * side,
                "iscrowd": 0,
                "segmentation": [[left, top, left + side, top, left + side, top + side]],
            }
            for number, (left, top) in enumerate(boxes)
        ],
        "categories": [{"id": 1 + number, "name": f"class{number}"} for number in range(categories)],
    }
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(json.dumps(content))


def bert(at: Path, vocabulary: str = "", labels: int = 2) -> None:
    """A tiny BERT in Hugging Face's format: these characters, a configuration, random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    at.mkdir(parents=True, exist_ok=True)
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    words = [*special, *dict.fromkeys(vocabulary or "abcdefghijklmnopqrstuvwxyz")]
    (at / "vocab.txt").write_text("\n".join(words) + "\n")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(words), num_labels=labels, **sizes)
    BertForSequenceClassification(config).save_pretrained(at)


def tokens(at: Path, count: int = 4096, below: int = 64, header: bool = False) -> None:
    """Token numbers of two bytes each, as language models read them; with llm.c's header."""
    at.parent.mkdir(parents=True, exist_ok=True)
    start = struct.pack("<256i", 20240520, 1, count, *[0] * 253) if header else b""
    at.write_bytes(start + struct.pack(f"<{count}H", *random.choices(range(below), k=count)))


def sounds(
    at: Path, count: int = 16, seconds: float = 1.0, rate: int = 16000, names: str = "{number}"
) -> None:
    """Mono files of noise with 16 bits a sample."""
    import wave

    at.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        place = at / f"{names.format(number=number)}.wav"
        place.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(place), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(random.randbytes(int(seconds * rate) * 2))


MAKERS = {
    maker.__name__: maker
    for maker in (mnist, cifar, folder, text, images, array, table, records, coco, bert, tokens, sounds)
}


def make(folder: Path, recipe: dict[str, Any]) -> None:
    """Make one data set of a manifest below a folder."""
    arguments = dict(recipe)
    maker, at = MAKERS[arguments.pop("make")], folder / arguments.pop("at")
    random.seed(str(recipe))
    maker(at, **arguments)

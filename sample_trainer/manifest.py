"""What a checkpoint says that it holds: its step, its components, and the size and SHA-256 of each of its files.

A manifest may come from anywhere, so that nothing in it is believed before it was looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = 1

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """What the manifest says of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds."""

    step: int
    world_size: int
    kinds: Mapping[str, str]
    """Of each component, by name."""
    files: Mapping[str, File]


def parse_manifest(text: bytes) -> Manifest:
    """The manifest in a text.

    Raises:
        ValueError: it is none, and why.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # also of what is not UTF-8, or a number of 5000 digits
        raise ValueError("it is not JSON") from None
    values = _typed(values, dict, "the whole")
    if values.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    kinds = _typed(values.get("components"), dict, "components")
    files = {
        _file_name(name): _file(name, entry)
        for name, entry in _typed(values.get("files"), dict, "files").items()
    }
    for name, kind in kinds.items():
        _typed(kind, str, f"the kind of {name[:100]!r}")
        if f"{name}.pt" not in files:
            raise ValueError(f"it has no file for the component {name[:100]!r}")
    return Manifest(_count(values, "step", 0), _count(values, "world_size", 1), kinds, files)


def manifest_text(manifest: Manifest) -> bytes:
    """The text that parse_manifest reads."""
    values = {
        "format": FORMAT,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "components": dict(manifest.kinds),
        "files": {name: {"bytes": file.size, "sha256": file.sha256} for name, file in manifest.files.items()},
    }
    return (json.dumps(values, indent=1) + "\n").encode()


def _file_name(name: str) -> str:
    if not _FILE.fullmatch(name):  # no way out of the folder
        raise ValueError(f"{name[:100]!r} is no name of a file in it")
    return name


def _file(name: str, entry: Any) -> File:
    digest = _typed(entry, dict, name).get("sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"{name} has no SHA-256")
    return File(_count(entry, "bytes", 0), digest)


def _count(entry: Mapping[str, Any], name: str, least: int) -> int:
    value = entry.get(name)
    if type(value) is not int or not least <= value < 1 << 62:
        raise ValueError(f"{name} is not a count")
    return value


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is not {'an object' if kind is dict else 'a text'}")
    return value

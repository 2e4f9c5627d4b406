"""Makes foreign text safe to show: secrets masked, control characters escaped."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote as percent_encode

from ddpdoctor.model import Change, Evidence, Finding, Patch, Report
from ddpdoctor.secret import MASK, has_secret_shape, is_secret, mask_command, mask_shapes
from ddpdoctor.text import escape, quote, show_value, show_variable

__all__ = ["clean", "escape", "mask_command", "mask_files", "quote", "show_value", "show_variable"]

_SHORTEST_SECRET = 4
_LONG_ENOUGH_TO_STAND_ALONE = 8
"""A secret shorter than this is masked only where no letter or digit adjoins it: ``rain`` is not in ``train``."""
_MULTI_LINE: Mapping[type, tuple[str, ...]] = {
    Finding: ("why", "fix"),
    Evidence: ("text",),
    Report: ("notes",),
    Patch: ("diff",),
    Change: ("text",),
}


def clean(report: Report, environ: Mapping[str, str]) -> Report:
    """The report as it may leave this machine.

    Every text in it is escaped, and masked: what has the shape of a secret, and the values of the
    variables in ``environ`` that are secrets by name or shape.
    """
    mask = _masker(environ)
    cleaned: Report = _walk(replace(report, command=tuple(mask_command(report.command))), mask)
    return cleaned


def mask_files(folder: Path, environ: Mapping[str, str]) -> None:
    """Mask what :func:`clean` masks in every file of a folder, as torch quotes variables in its errors.

    A file of JSON, or of a JSON value in each line, stays one. One of numbers, which are found by their offsets, stays
    as it is.
    """
    mask = _masker(environ)
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".jsonl" and path.is_file() and not path.is_symlink():
            _mask_lines(path, mask)
        elif path.suffix != ".numbers" and path.is_file() and not path.is_symlink():
            text = path.read_bytes().decode(errors="surrogateescape")
            masked = _mask_json(text, mask) if path.suffix == ".json" else mask(text)
            if masked != text:
                path.write_bytes(masked.encode(errors="surrogateescape"))


def _mask_lines(path: Path, mask: Callable[[str], str]) -> None:
    """Mask the values in a record line by line, since that of a long run is a hundred megabytes."""
    part = path.with_name(path.name + ".part")
    with path.open(errors="surrogateescape") as lines, part.open("w", errors="surrogateescape") as masked:
        for line in lines:
            masked.write(line if mask(line) == line else _mask_json(line, mask))
    part.replace(path)


def _mask_json(text: str, mask: Callable[[str], str]) -> str:
    try:
        values = [json.loads(line) for line in text.splitlines()]
    except json.JSONDecodeError:  # its writer was killed, or it is written over several lines
        return mask(text)
    return "".join(json.dumps(_mask_strings(value, mask), separators=(",", ":")) + "\n" for value in values)


def _mask_strings(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [_mask_strings(item, mask) for item in value]
    if isinstance(value, dict):
        return {mask(key): _mask_strings(item, mask) for key, item in value.items()}
    return value


def _walk(value: Any, mask: Callable[[str], str], keep: str = "") -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return mask(escape(value.replace("\t", "    "), keep) if keep else escape(value))
    if isinstance(value, Mapping):
        return {_walk(key, mask): _walk(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_walk(item, mask, keep) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        lines = _MULTI_LINE.get(type(value), ())
        own = ((it.name, getattr(value, it.name), "\n" if it.name in lines else "") for it in fields(value))
        return replace(value, **{name: _walk(field, mask, keep) for name, field, keep in own})
    return value


def _masker(environ: Mapping[str, str]) -> Callable[[str], str]:
    secrets = {value for name, value in environ.items() if is_secret(name, value) or has_secret_shape(value)}
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST_SECRET}
    forms = {form for form in forms if not re.fullmatch(r"\d{,5}|\W*", form)}
    if not forms:
        return mask_shapes
    pattern = re.compile("|".join(_bounded(form) for form in sorted(forms, key=len, reverse=True)))
    return lambda text: mask_shapes(pattern.sub(MASK, text))


def _forms(secret: str) -> Iterable[str]:
    """The ways in which a value may stand in a text: as it is, quoted for a shell, in JSON, in a URL, line by line."""
    yield escape(secret)
    yield escape(secret.replace("\t", "    "), keep="\n")
    yield repr(secret)[1:-1]
    yield escape(shlex.quote(secret).strip("'"))
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield percent_encode(secret, safe="", errors="surrogateescape")
    yield escape(" ".join(secret.split()))
    yield from (escape(line.strip()) for line in secret.splitlines() if len(line.strip()) >= 16)


def _bounded(form: str) -> str:
    escaped = re.escape(form)
    return escaped if len(form) >= _LONG_ENOUGH_TO_STAND_ALONE else rf"(?<!\w){escaped}(?!\w)"

"""Opens what is to be read: files, packed files, folders of a launcher, a pipe."""

import bz2
import codecs
import gzip
import io
import itertools
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from ddpdoctor.logs.read import Stream

CHUNK = 1 << 16
"""Bytes read at once; the allocator gives more than 128 KiB back to the system each time, and takes them anew."""
STANDARD_INPUT = "-"
NAME_OF_STANDARD_INPUT = "stdin"
_LOOKED_AT = 8192
"""Bytes of a file that tell whether it is one of text."""
_PACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    **{b"BZh%d1AY" % level: bz2.open for level in range(1, 10)},
}
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a file begins that PowerShell wrote."""
_NO_TEXT = bytes({*range(1, 32)} - {*b"\a\b\t\n\v\f\r\x1b"})
"""Characters that terminals have no use for; of what is packed or encoded they are a tenth."""
_RANK_FOLDER = re.compile(
    r"(?:^|/)attempt_(?P<attempt>\d+)/(?P<rank>\d+)/(?:std(?:out|err)\.log|error\.json)$"
)
_RANK_NAME = re.compile(
    r"(?:(?<![A-Za-z])(?<!(?:node|role)[_-])(?<!(?:local|group)[_-])rank|std_log_process)[_=.-]?"
    r"(?P<rank>\d{1,6})(?!\d)[^/]*$"
)
"""In the name of a file that a launcher, Azure's for instance, or a script gave to one rank."""


class UnreadableInput(Exception):
    """A file or folder cannot be read; the text says which and why."""


def streams(paths: list[str]) -> list[Stream]:
    """A stream for each file meant, opened when read. UnreadableInput for a missing one, or a folder with no file."""
    all_streams = [stream for path in paths for stream in _streams(path)]
    named = {it.name: int(match["rank"]) for it in all_streams if (match := _RANK_NAME.search(it.name))}
    if len(set(named.values())) < 2:  # one name alone may be that of the whole job's output
        return all_streams
    return [replace(s, rank=named.get(s.name)) if s.rank is None else s for s in all_streams]


def _streams(path: str) -> Iterator[Stream]:
    if path == STANDARD_INPUT:
        yield Stream(NAME_OF_STANDARD_INPUT, _unpacked(sys.stdin.buffer, NAME_OF_STANDARD_INPUT))
    elif Path(path).is_dir():
        files = _last_attempts(sorted(entry for entry in Path(path).rglob("*") if entry.is_file()))
        if not files:
            raise UnreadableInput(f"the folder {path!r} holds no file")
        yield from (_stream(file) for file in files if not _is_binary(file))
    elif Path(path).exists():
        if _is_binary(Path(path)):
            raise UnreadableInput(f"{path!r} is a binary file, not a job's output")
        yield _stream(Path(path))
    else:
        raise UnreadableInput(f"there is no file {path!r}")


def _last_attempts(files: list[Path]) -> list[Path]:
    """Of a launcher's folder the files of the last attempt, since the ones before were started again."""
    attempts: dict[Path, int] = {}
    folders = {file: _RANK_FOLDER.search(str(file)) for file in files}
    for file, known in folders.items():
        if known:
            attempts[file.parents[2]] = max(attempts.get(file.parents[2], 0), int(known["attempt"]))
    return [
        file
        for file, known in folders.items()
        if not known or int(known["attempt"]) == attempts[file.parents[2]]
    ]


def _is_binary(path: Path) -> bool:
    """Whether it is a file that is neither a text nor unpacked; a pipe can be read once only."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _is_of_no_text(file.read(_LOOKED_AT))
    except OSError as failed:
        raise UnreadableInput(f"{str(path)!r} cannot be read: {failed.strerror}") from None


def _is_of_no_text(start: bytes) -> bool:
    """Whether it has characters that no log has, and is of no format that is unpacked."""
    if start.startswith((*_PACKED, *_UTF_16)):
        return False
    start = start.rstrip(b"\0") or start  # of a crash in the middle of a write
    odd = len(start) - len(start.translate(None, _NO_TEXT))
    return start.count(0) > len(start) // 10 or odd > len(start) // 30


def _stream(path: Path) -> Stream:
    known = _RANK_FOLDER.search(str(path))
    return Stream(str(path), _file_chunks(path), int(known["rank"]) if known else None)


def _file_chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from _unpacked(file, str(path))
    except OSError as failed:
        raise UnreadableInput(f"{str(path)!r} cannot be read: {failed}") from None


def _unpacked(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The text of a file or a pipe, packed or not."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file))
    start = buffered.peek(_LOOKED_AT)[:_LOOKED_AT]
    if _is_of_no_text(start):
        raise UnreadableInput(f"{name!r} is a binary file, not a job's output")
    unpack = next((opener for magic, opener in _PACKED.items() if start.startswith(magic)), None)
    try:
        yield from _chunks(unpack(buffered, "rb") if unpack else buffered)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as failed:
        raise UnreadableInput(f"{name!r} cannot be read: {failed}") from None


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """The text, in UTF-8 where it begins as one of UTF-16."""
    first = file.read(CHUNK)
    chunks = itertools.chain([first] if first else [], iter(lambda: file.read(CHUNK), b""))
    if first.startswith(_UTF_16):
        return (text.encode() for text in codecs.iterdecode(chunks, "utf-16", "replace"))
    # Of a long output the middle may have been given back to the disk.
    return filter(lambda chunk: chunk.strip(b"\0"), chunks)

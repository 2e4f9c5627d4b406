"""A folder as bytes, for another host: compressed, bounded, and unpacked into nothing but its own folder."""

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

LARGEST = 256 << 20
"""Bytes of all files together, as they lie in the folder; records of an hour of training have about 10 MB a rank."""
MOST_FILES = 100_000
_TAIL = 1 << 20
"""Of a text that does not fit, its last bytes are taken: it ends with what matters."""
_TEXTS = {".jsonl", ".json", ".log"}
"""Of other files the first bytes are taken, so that what is found in them by its offset is still found."""


class Damaged(Exception):
    """The bytes are no such parcel."""


def pack(folder: Path, wanted: Iterable[Path]) -> tuple[bytes, list[str]]:
    """Files of a folder, the most important first, as bytes, and the names of those that are not in them as a whole."""
    room, cut = LARGEST, []
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as parcel:
        for file in wanted:
            name = file.relative_to(folder).as_posix()
            try:
                content = _content(file, room)
                whole = len(content) == file.stat().st_size
            except OSError:
                content, whole = b"", False
            if not whole:
                cut.append(name)
            room -= len(content)
            parcel.writestr(name, content)
    return packed.getvalue(), cut


def _content(file: Path, room: int) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as opened:
        if size > room and file.suffix in _TEXTS:
            opened.seek(size - min(_TAIL, room))
        return opened.read(min(size, room))


def unpack(packed: bytes, folder: Path) -> None:
    """Write the files into a folder. Raises Damaged where it is no parcel, or a name in it leads out of the folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as parcel:
            files = parcel.infolist()
            if len(files) > MOST_FILES or sum(file.file_size for file in files) > LARGEST:
                raise Damaged("it is too large")
            for file in files:
                path = folder / _inside(file.filename)
                path.parent.mkdir(parents=True, exist_ok=True)
                with parcel.open(file) as content:
                    path.write_bytes(content.read(file.file_size + 1))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as wrong:
        raise Damaged(str(wrong)) from None


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise Damaged("a name in it leads out of the folder")
    return path

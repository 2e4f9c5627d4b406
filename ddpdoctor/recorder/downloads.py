"""Notes what this process downloads, which stays where a check undoes what its script writes.

A download is told by its bytes, and not by who wrote it: of each answer to a GET request the length and a digest are
noted, and a new file that has them is kept (:class:`ddpdoctor.job.journal.Downloads`). So a checkpoint is none,
whatever its script hears from a tracking server meanwhile. What ``extractall`` unpacks from such an archive is kept,
too, since many scripts then remove the archive.
"""

import functools
import importlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from hashlib import sha1
from typing import Any

from .patch import Args, Kwargs, after_call, around, guarded

ENDING = ".downloads"
"""How the names of files end in which that is noted, in the folder of the journal."""
_MOST = 10_000
"""Answers that are noted, of a script that may read each sample from a server."""
_LEAST = 16
"""Bytes of an answer that no file has by chance."""
_BODY, _READS = "_ddpdoctor_body", "_ddpdoctor_reads"
_READERS = ("read", "read1", "readinto", "readline", "_safe_read")
"""The methods that read an answer; the last one urllib3 calls for an answer in chunks, and for the end of each."""
_ENCODED = ("gzip", "x-gzip", "deflate")
_ARCHIVES = (("tarfile", "TarFile", "getnames", "name"), ("zipfile", "ZipFile", "namelist", "filename"))
"""Classes of archives: the method that gives the names in one, and the attribute that has its path."""


class _Body:
    """What was read of an answer, as it came and, where it was compressed on the way, as it was meant."""

    def __init__(self, response: Any) -> None:
        self.began = time.clock_gettime_ns(time.CLOCK_REALTIME)  # which no script replaces
        encoded = response.getheader("content-encoding", "").lower() in _ENCODED
        self._decode = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress if encoded else None
        self._digests = [sha1(usedforsecurity=False) for _ in range(2 if encoded else 1)]
        self._lengths = [0 for _ in self._digests]

    def add(self, data: bytes | memoryview) -> None:
        parts = [data] if self._decode is None else [data, self._decode(data)]
        for number, part in enumerate(parts):
            self._digests[number].update(part)
            self._lengths[number] += len(part)

    def told(self) -> dict[str, int]:
        """The digests and lengths that a file of it has."""
        pairs = zip(self._digests, self._lengths, strict=True)
        return {digest.hexdigest(): length for digest, length in pairs if length >= _LEAST}


class Downloads:
    """What this process downloaded, noted in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}
        self._noted = 0

    def watch_answers(self) -> None:
        """Hear what the answers of servers are, whoever reads them."""
        response: Any = sys.modules["http.client"].HTTPResponse
        for name in _READERS:
            setattr(response, name, around(self._read)(getattr(response, name)))
        response.close = after_call(lambda _, args, __: self._end(args[0]))(response.close)

    def _read(self, original: Callable[..., Any], response: Any, *args: Any, **kwargs: Any) -> Any:
        state = vars(response)
        if _READS in state:  # for another one of these methods
            return original(response, *args, **kwargs)
        state[_READS] = True
        try:
            data = original(response, *args, **kwargs)
        finally:
            state.pop(_READS, None)  # which another thread may have taken
        if not (original.__name__ == "_safe_read" and data == b"\r\n"):
            self._take(response, memoryview(args[0])[:data] if isinstance(data, int) else data)
        return data

    @guarded
    def _take(self, response: Any, data: bytes | memoryview) -> None:
        if response._method == "GET":
            if _BODY not in vars(response):
                setattr(response, _BODY, _Body(response))
            getattr(response, _BODY).add(data)
            if response.isclosed():
                self._end(response)

    def _end(self, response: Any) -> None:
        if (body := vars(response).pop(_BODY, None)) is not None and (told := body.told()):
            if not self._seen:
                self._watch_archives()
            self._seen |= told
            self._note({"began": body.began, "answers": told})

    def _watch_archives(self) -> None:
        """Hear what is unpacked."""
        for module, name, names, place in _ARCHIVES:
            kind = getattr(importlib.import_module(module), name)
            kind.extractall = after_call(functools.partial(self._unpacked, names, place))(kind.extractall)

    def _unpacked(self, names: str, place: str, _: Any, args: Args, kwargs: Kwargs) -> None:
        archive, into = args[0], args[1] if len(args) > 1 else kwargs.get("path")
        path = getattr(archive, place)
        if path and os.path.getsize(path) in self._seen.values() and digest(path) in self._seen:
            folder = os.path.realpath(into or ".")
            self._files(os.path.join(folder, name) for name in getattr(archive, names)())

    def watch_hugging_face(self) -> None:
        """Hear which file a function downloaded."""
        owner: Any = sys.modules["huggingface_hub.file_download"]
        tell = after_call(lambda path, *_: self._files([os.path.realpath(path)]))
        owner.hf_hub_download = tell(owner.hf_hub_download)

    def _files(self, paths: Iterable[str]) -> None:
        found = {}
        for path in paths:
            there = os.lstat(path)
            found[os.path.normpath(path)] = (there.st_size, there.st_mtime_ns)
        self._note({"files": found})

    def _note(self, entry: dict[str, Any]) -> None:
        self._noted += 1
        if self._noted <= _MOST:
            place = os.path.join(self._folder, f"{os.uname().nodename}-{os.getpid()}{ENDING}")
            with open(place, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{json.dumps(entry)}\n")


def digest(path: str) -> str:
    """That of a file."""
    total = sha1(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            total.update(piece)
    return total.hexdigest()


@functools.cache
def of_process(folder: str) -> Downloads:
    """What this process downloads, noted in a folder."""
    return Downloads(folder)

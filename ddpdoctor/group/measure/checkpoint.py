"""A slow write by rank 0 into the checkpoint folder, read by the others during it and after a barrier."""

import hashlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ddpdoctor.group import rank_files
from ddpdoctor.group.context import Context

SECONDS = 15.0
CHUNKS = 6
CHUNK = bytes(range(256)) * 512
PAUSE = 0.05
LOOK_EVERY = 0.03
_KEY = "checkpoint/folder"


class _Background:
    """A thread and what became of it."""

    def __init__(self, work: Callable[[Path, threading.Event], None], path: Path) -> None:
        self.path = path
        self.error: str | None = None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Callable[[Path, threading.Event], None]) -> None:
        try:
            work(self.path, self.stop)
        except OSError as error:
            self.error = error.strerror


_background: _Background | None = None
_refusal: str | None = None
_saw: list[str] = []


def begin(context: Context) -> None:
    """Start writing on rank 0, looking on the others; a folder that cannot be written is told to everybody."""
    global _background, _refusal  # noqa: PLW0603 - begin() and measure() share nothing else
    if context.rank == 0:
        _publish_folder(context)
    context.step("the store: the checkpoint folder")
    published = context.read(_KEY)
    _refusal = published.get("error")
    if _refusal is None:
        work = _write if context.rank == 0 else _look
        _background = _Background(work, Path(published["folder"]) / "checkpoint.bin")


def _publish_folder(context: Context) -> None:
    folder = rank_files.checkpoint_folder(context.folder, context.launch.checkpoint_dir)
    try:
        folder.mkdir()
    except OSError as error:
        context.publish(_KEY, {"error": str(error.strerror)})
    else:
        context.publish(_KEY, {"folder": str(folder)})


def _write(path: Path, _stop: threading.Event) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(CHUNKS):
            file.write(CHUNK)
            time.sleep(PAUSE)
        os.fsync(file.fileno())


def _look(path: Path, stop: threading.Event) -> None:
    # Whoever reads on is at work, and a hang of this very rank would not be seen.
    while "whole" not in _saw and not stop.wait(LOOK_EVERY):
        state = _state(path)[0]
        if state not in _saw:
            _saw.append(state)


def _state(path: Path) -> tuple[str, int]:
    """What a reader finds now: nothing, part or whole, and how many bytes."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "nothing", 0
    whole = hashlib.sha256(content).digest() == hashlib.sha256(CHUNK * CHUNKS).digest()
    return ("whole" if whole else "part"), len(content)


def measure(context: Context) -> dict[str, Any]:
    """What this rank saw during the write, and after the barrier that follows it."""
    if _background is None:
        return {"error": _refusal}
    try:
        return _measure(context, _background)
    finally:
        if context.rank == 0:
            shutil.rmtree(_background.path.parent, ignore_errors=True)


def _measure(context: Context, background: _Background) -> dict[str, Any]:
    background.stop.set()
    background.thread.join()
    context.step("barrier after the checkpoint is written")
    dist.barrier()
    after, length = _state(background.path)
    context.step("barrier after the checkpoint is read")
    dist.barrier()
    return {
        "error": background.error,
        "host": socket.gethostname(),
        "during": list(_saw),
        "after": after,
        "bytes": length,
        "expected_bytes": len(CHUNK) * CHUNKS,
    }

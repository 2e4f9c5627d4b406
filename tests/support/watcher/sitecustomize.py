"""In every Python process that a fast test starts: notes an import of torch, and a start of torchrun."""

import os
import sys
from typing import Any

LOG = "FAST_TEST_STARTS"
"""The variable that names the file of notes."""


def note(what: str) -> None:
    if log := os.environ.get(LOG):
        with open(log, "a") as file:  # noqa: PTH123 - the standard library's start, before pathlib is there
            file.write(what + "\n")


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook."""
    if event == "subprocess.Popen" and starts_torchrun(arguments[1]):
        note("starts torchrun")


def watch_child(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook of a process that the test started."""
    if event == "import" and arguments[0] == "torch":
        note("starts a process that imports torch: " + " ".join(sys.orig_argv)[:200])
    watch(event, arguments)


def starts_torchrun(command: Any) -> bool:
    words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
    texts = [os.fsdecode(word) for word in words]
    return texts[0].endswith("torchrun") or any("torch.distributed.run" in text for text in texts)


if __name__ == "sitecustomize":
    sys.addaudithook(watch_child)

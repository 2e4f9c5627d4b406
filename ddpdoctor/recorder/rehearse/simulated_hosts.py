"""Imaginary ranks on simulated hosts: which rank this process is to be, and how many GPUs its host has.

Loaded before torch, and before the script reads its environment.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import socket
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

HOST = "DDPDOCTOR_IMAGINARY_HOST"
"""Set once this rank has its host, so that the processes it starts are not divided again."""
NPROC = "DDPDOCTOR_NPROC"
"""How many ranks the launch has on this machine, for scripts that start them on their own."""
WORLD_SIZE = "DDPDOCTOR_WORLD_SIZE"
"""The number of ranks that the script is to see; 0 or absent where all ranks are real."""
RANKS = "DDPDOCTOR_RANKS"
"""The real ranks, in the order of the processes that stand for them."""
_HOST_NAME = re.compile(r"node\d+$")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ARGUMENT = re.compile(r"(--local[-_]rank=)\d+$")


class Host:
    """The GPUs of the host that this process is on: one for each local rank, unless the variables hide some."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        sizes = (self._environ.get(name, "") for name in ("LOCAL_WORLD_SIZE", NPROC))
        self.size = next((int(size) for size in sizes if size.isdigit() and int(size) > 0), 1)
        # GPUs that were hidden before the script began were hidden on the machine without them.
        self._hidden = self._environ.get(_VISIBLE) if not self._entries() else None
        self._taken: list[str] | None = None

    def gpus(self) -> list[str]:
        """What the script sees as cuda:0, cuda:1 and so on, by the number that the host gives them."""
        if self._taken is not None:
            return self._taken
        if (value := self._environ.get(_VISIBLE)) is None or value == self._hidden:
            return [str(index) for index in range(self.size)]
        return self._entries()[: self.size if HOST in self._environ else None]

    def variable(self) -> str | None:
        """CUDA_VISIBLE_DEVICES as it is now."""
        return self._environ.get(_VISIBLE)

    def take(self) -> None:
        """From the first use on, CUDA does not look at the variable again."""
        self._taken = self.gpus()

    def _entries(self) -> list[str]:
        """The entries of CUDA_VISIBLE_DEVICES up to the first that is no device, as CUDA reads them."""
        entries: list[str] = []
        for entry in self._environ.get(_VISIBLE, "").split(","):
            if not entry.strip() or entry.strip() == "-1":
                break
            entries.append(entry.strip())
        return entries


# -- a job of which only a few ranks are real ------------------------------------------------------------------


@dataclass(frozen=True)
class ImaginedJob:
    """A job as the script is to see it."""

    size: int
    """The number of its ranks."""
    nproc: int
    """Ranks on each host; the last one may have fewer."""
    real: tuple[int, ...]
    """The ranks that are processes, in order."""

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str]) -> ImaginedJob | None:
        """The job that the command asks for; None where every rank is real."""
        if not (size := int(environ.get(WORLD_SIZE) or 0)):
            return None
        real = tuple(int(rank) for rank in environ[RANKS].split(","))
        return cls(size, int(environ.get(NPROC) or size), real)

    def variables(self, rank: int) -> dict[str, object]:
        """What torchrun would set for a rank."""
        host, local_rank = divmod(rank, self.nproc)
        first = host * self.nproc
        return {
            HOST: host,
            "RANK": rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": min(self.nproc, self.size - first),
            "GROUP_RANK": host,
            "GROUP_WORLD_SIZE": -(-self.size // self.nproc),
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": self.size,
        }


def take_place(environ: MutableMapping[str, str], argv: list[str]) -> None:
    """Make this process the rank that it stands for, once; processes that are no ranks are left as they are."""
    job, process = ImaginedJob.of_environment(environ), environ.get("LOCAL_RANK", "")
    if job is None or not process.isdigit():
        return
    if HOST not in environ:
        variables = job.variables(job.real[int(process)])
        environ.update({name: str(value) for name, value in variables.items()})
        # torch.distributed.launch tells the local rank in the arguments, too.
        argv[1:] = [_ARGUMENT.sub(rf"\g<1>{variables['LOCAL_RANK']}", argument) for argument in argv[1:]]
    _name_host(f"node{environ[HOST]}")


def _name_host(name: str) -> None:
    """Have Python call this host by another name, which leads back here; gloo asks the system itself."""
    socket.gethostname = lambda: name
    platform.node = lambda: name
    for function in ("getaddrinfo", "gethostbyname", "gethostbyaddr"):
        setattr(socket, function, _resolving(getattr(socket, function)))


def _resolving(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        imagined = isinstance(host, str) and _HOST_NAME.match(host)
        return original("127.0.0.1" if imagined else host, *args, **kwargs)

    return resolve


def missing_file(error: BaseException, job: ImaginedJob | None) -> str:
    """The file of an imaginary rank that a script looked for; empty where that is not why it failed."""
    name = getattr(error, "filename", None)
    if job is None or not isinstance(error, FileNotFoundError) or not isinstance(name, str | bytes):
        return ""
    text = os.path.basename(os.fsdecode(name))
    numbers = {int(number) for number in re.findall(r"\d+", text)}
    return text if any(number < job.size and number not in job.real for number in numbers) else ""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from ddpdoctor.check import Check, Finding, Judgement, Kind, NotMeasured, Passed, Skipped
from ddpdoctor.failures import Message
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.host import Host
from ddpdoctor.host.torch_build import TorchBuild
from ddpdoctor.text import quote

BUILT_IN = ("gloo", "nccl", "mpi", "ucc", "xccl")
ALWAYS_THERE = frozenset({"fake"})
"""Backends in Python that every torch has."""
PLUGINS = {
    "ccl": "oneccl_bindings_for_pytorch",
    "hccl": "torch_npu",
    "cncl": "torch_mlu",
    "mccl": "torch_musa",
    "smddp": "smdistributed",
    "xla": "torch_xla",
}
"""Backends that a package registers when it is imported."""
_OTHER_DEVICE = "a collective was called on a {} tensor, and the group has no backend for that device"
_PER_DEVICE: dict[str, Any] = {
    "why": "A backend communicates tensors of its device types only; nccl those on GPUs.",
    "fix": "move the tensor to a device of the group's backend (nccl: cuda, gloo: cpu), or use both: "
    'dist.init_process_group("cpu:gloo,cuda:nccl")',
}


class BackendUnavailable(Check):
    """The requested backend is not in this torch, or has no device here.

    What it finds:
        A torch that cannot be imported, for instance because the working directory was deleted, or takes minutes; a
        backend that is not compiled into the installed torch (NCCL in a CPU build); a misspelt name; NCCL on a
        machine without a GPU; a backend whose plugin package is not installed.

    Why it matters:
        init_process_group fails on every rank; with NCCL and no GPU, the first collective fails. NCCL is in CUDA builds
        for Linux only, and needs a GPU for each rank.

    Example:
        The CPU build of torch, installed by `pip install torch --index-url .../cpu`:
            dist.init_process_group("nccl")          # RuntimeError: Distributed package doesn't have NCCL built in

    Fix:
        Use gloo where there is no GPU:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        or install a build of torch for this machine's GPUs.
    """

    code = "DD013"
    title = "the backend is in this torch"
    breaks_group = True
    messages = (
        Message(
            r"use_libuv was requested but PyTorch was buil[dt] without libuv support",
            headline="this torch is built without libuv, which its rendezvous store uses by default",
            why="TCPStore uses libuv since torch 2.4. Builds for Windows do not have it, so the store cannot be "
            "created, by torchrun or by init_process_group.",
            fix="set USE_LIBUV=0                  # before torchrun; export USE_LIBUV=0 in a Unix shell\n"
            'dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500?use_libuv=0", ...)',
        ),
        Message(
            r"(?:ProcessGroup|Backend )\w+ (?:does not|doesn't) support (?P<call>[a-z_]{4,40})$",
            headline="the group's backend has no {call}",
            why="Each backend has some of the collectives only; gloo's and NCCL's differ.",
            fix="see the table of backends in the documentation of torch.distributed",
        ),
        Message(
            r"module 'torch(?:\.distributed|\._C)' has no attribute '(?:init_process_group|_c10d_init|ProcessGroup)'",
            headline="this torch is built without torch.distributed",
            why="Builds with USE_DISTRIBUTED=0, and some for macOS and Jetson, have an empty torch.distributed.",
            fix="install another build of torch: torch.distributed.is_available() has to be True",
        ),
        Message(
            r"Distributed package doesn't have (?P<backend>\w+) built in"
            r"|(?:Invalid backend|Unknown c10d backend type):? '?(?P<unknown>\w+)",
            headline="this torch has no backend {backend}{unknown}",
        ),
        Message(
            r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
            headline="backend nccl found no GPU",
        ),
        Message(
            r"No backend type associated with device type (?P<device>\w+)"
            r"|invalid tensor type at index \d+ \(expected .{0,80}device=\w+.{0,80}got .{0,80}device=(?P<given>\w+)"
            r"|ProcessGroup\w+ (?:does not|doesn't) support (?P<other>\w+) tensors",
            headline=_OTHER_DEVICE.format("{device}{given}{other}"),
            **_PER_DEVICE,
        ),
        Message(r"Tensors must be CUDA and dense", headline=_OTHER_DEVICE.format("cpu"), **_PER_DEVICE),
    )

    def examine_host(self, host: Host) -> Judgement:
        if host.system.working_directory() is None:
            return self.fail(
                "the working directory was deleted, and torch cannot be imported there",
                why="Libraries that torch loads read the current directory, and end the process if it does not exist: "
                "every rank of every job that is started here.",
                fix='cd "$PWD"     # if the directory was created again; else cd to one that exists',
            )
        build = host.torch
        if build is None:
            return Skipped("no torch is installed for this Python")
        backends = dict.fromkeys(_backends(host.launch.backend))
        return [it for backend in backends for it in self._unavailable(host, build, backend)] or Passed(
            f"torch {build.version} has the backend {host.launch.backend}"
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.stage is not Stage.IMPORT:
            return Passed(f"torch {ranks.torch} is importable")
        if ranks.out_of_time or ranks.unwritable:
            raise NotMeasured(ranks.broken or "")
        if ranks.hung:
            return self.warn(
                ranks.broken or "torch was not imported",
                why="The import raised no error; it was still going on. Either other processes leave it no CPU, or "
                "this Python is on a slow file system, often one of a network. Every rank of a job imports it, too.",
                fix="python -X importtime -c 'import torch'     # when nothing else runs here: shows what is slow\n"
                "if it is slow then, too: install this Python and torch on a local disk",
            )
        return self.fail(
            "torch cannot be imported",
            why=f"{(ranks.broken or '').rstrip('.')}. Every rank of every job would fail in the same way.",
            fix="python -c 'import torch'     # shows the whole error; reinstall torch for this Python and driver",
        )

    def _unavailable(self, host: Host, build: TorchBuild, backend: str) -> Iterator[Finding]:
        package, about = PLUGINS.get(backend), Kind.BACKEND.of(backend)
        if package is not None:
            if not host.system.package_folder(package):
                yield self.fail(
                    f"backend {backend} is registered by {package}, which is not installed",
                    fix=f"install the package that provides {package}; or --backend gloo",
                    about=about,
                )
        elif backend not in (*BUILT_IN, *ALWAYS_THERE):
            near = get_close_matches(backend, [*build.backends, *PLUGINS], 1)
            yield self.fail(
                f"backend {quote(backend)} is not known to torch {build.version}",
                why="init_process_group fails on every rank, unless the script registers this backend itself "
                "(torch.distributed.Backend.register_backend).",
                fix=f"--backend {near[0] if near else 'gloo'}",
                about=about,
            )
        elif backend not in (*build.backends, *ALWAYS_THERE):
            present = ", ".join(sorted(build.backends))
            yield self.fail(
                f"backend {backend} is not compiled into torch {build.version}, which has {present}",
                about=about,
            )
        elif backend == "nccl" and not build.hip and host.gpus.absent:
            yield self.fail(f"backend nccl has no GPU to use: {host.gpus.absent}", about=about)


def _backends(backend: str) -> Iterator[str]:
    """The backends in ``gloo`` or in ``cpu:gloo,cuda:nccl``."""
    yield from (part.rpartition(":")[2].strip().lower() for part in backend.split(","))

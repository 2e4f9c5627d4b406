"""One rank of the live group: joins, measures in order, writes every event to its file, and leaves cleanly."""

import ctypes
import faulthandler
import importlib
import importlib.util
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.files import write_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.context import Context
from ddpdoctor.group.measure import module_of
from ddpdoctor.job.forks import wait_for_forks
from ddpdoctor.launch import Launch

DRAIN_SECONDS = 0.2
"""Pause before the process group goes. The destructor of ProcessGroupGloo joins its worker thread with the GIL
held while that thread may want the GIL (pytorch/pytorch#190489); a short pause lets the thread finish first."""
_COMPILER = "torch._dynamo"
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def run(launch_values: dict[str, Any], measurements: Sequence[str], folder_name: str) -> int:
    """A rank's whole life. Called by torchrun's engine in a process forked from the preloaded parent."""
    launch, folder = Launch.from_json(launch_values), Path(folder_name)
    rank = int(os.environ["RANK"])
    events = rank_files.EventWriter(rank_files.rank_file(folder, rank))
    _allow_stacks(rank_files.stack_file(folder, rank))
    # The engine's handlers were inherited by the fork; a rank ends at SIGTERM as any program does.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    events.write("hello", pid=os.getpid(), host=socket.gethostname(), backend=launch.backend)
    _wait_for_forks(launch, folder)
    try:
        _join(launch)
        events.write("joined")
        without_compiler()  # not earlier: init_process_group clears the caches of a compiler that is there
        context = _context(launch, rank, folder, events)
        measured = _measure(context, measurements, events)
        if launch.nnodes > 1:
            _share(context, measured)
    except BaseException as failed:
        events.write("failed", **describe(failed))
        raise
    events.write("finished")
    time.sleep(DRAIN_SECONDS)
    dist.destroy_process_group()
    return 0


def _wait_for_forks(launch: Launch, folder: Path) -> None:
    first = launch.node_rank * launch.nproc
    wait_for_forks([rank_files.rank_file(folder, rank) for rank in range(first, first + launch.nproc)])


def _allow_stacks(path: Path) -> None:
    """Let py-spy look at this process where only ancestors may, and let SIGUSR2 print its stack where nobody may."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    faulthandler.register(signal.SIGUSR2, file=descriptor, all_threads=False)


def _join(launch: Launch) -> None:
    torch.set_num_threads(1)
    device_id = None
    if launch.backend == "nccl":
        device_id = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device_id)
    dist.init_process_group(launch.backend, timeout=timedelta(seconds=launch.timeout), device_id=device_id)


def _context(launch: Launch, rank: int, folder: Path, events: rank_files.EventWriter) -> Context:
    local_rank = int(os.environ["LOCAL_RANK"])
    return Context(
        launch=launch,
        rank=rank,
        local_rank=local_rank,
        world_size=dist.get_world_size(),
        device=torch.device("cuda", local_rank) if launch.backend == "nccl" else torch.device("cpu"),
        folder=folder,
        step=lambda text: events.write("step", step=text),
    )


def measurement(name: str) -> ModuleType:
    return importlib.import_module(module_of(name))


def _measure(context: Context, names: Sequence[str], events: rank_files.EventWriter) -> dict[str, Any]:
    modules = {name: measurement(name) for name in names}
    for name, module in modules.items():
        if hasattr(module, "begin"):
            events.write("prepare", name=name)
            module.begin(context)
    measured = {}
    for name, module in modules.items():
        events.write("begin", name=name, limit=module.SECONDS)
        start = time.perf_counter()
        measured[name] = module.measure(context)
        events.write("done", name=name, value=measured[name], seconds=time.perf_counter() - start)
    return measured


def _share(context: Context, measured: dict[str, Any]) -> None:
    """Give every host the values of all ranks: a command sees only the files of its own host."""
    context.step("the store: the other hosts' results")
    context.publish(f"results/{context.rank}", {"host": socket.gethostname(), "measured": measured})
    if context.local_rank == 0:
        write_json(context.folder / rank_files.EVERYTHING, context.read_all("results"))
    context.step("barrier after the results are read")
    dist.barrier()  # the store ends with the host that has it


def describe(failed: BaseException) -> dict[str, Any]:
    """An exception, as the event of a rank that failed has it."""
    return {
        "type": type(failed).__name__,
        "message": str(failed),
        "traceback": traceback.format_exc(),
        "time": time.time(),
    }


# -- without torch's compiler -----------------------------------------------------------------------------------
# The constructor of DistributedDataParallel and the optimizers ask ``torch._dynamo`` small questions ("which mode is
# set?", "break the graph here"), and the first question imports the compiler: 0.8 s, a third of a whole check. For our
# own ranks, which live for half a second and run eagerly, a stand-in answers. Anything else that is asked of it brings
# the real module in. The bundled trainer under torchrun runs with the real one.


class _StandIn(ModuleType):
    """Answers as the compiler does where nothing is compiled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_bring_in_the_real_one(), name)


def without_compiler() -> None:
    """Put the stand-in into place, unless the compiler is there already."""
    spec = importlib.util.find_spec(_COMPILER)
    if _COMPILER in sys.modules or spec is None:
        return
    stand_in = _StandIn(_COMPILER)
    stand_in.__path__ = list(spec.submodule_search_locations or ())
    stand_in.__spec__ = spec
    answers = {
        "disable": lambda fn=None, *args, **options: fn,
        "graph_break": lambda *args, **options: None,
        "utils": SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer"),
    }
    vars(stand_in).update(answers)
    sys.modules[_COMPILER] = stand_in


def _bring_in_the_real_one() -> ModuleType:
    """Import the compiler in the stand-in's place."""
    sys.modules.pop(_COMPILER, None)
    vars(torch).pop("_dynamo", None)
    return importlib.import_module(_COMPILER)

"""The process that imports torch once and forks the ranks, by torchrun's own engine.

It is a Python of its own, with the user's environment and sitecustomize.
It imports torch while the command reads the host's facts, then waits for the command's word to start. It never
touches CUDA: a forked child could not use it any more.
"""

import os
import sys
import tempfile
import time
from multiprocessing.popen_fork import Popen
from pathlib import Path
from typing import Any

from ddpdoctor.files import read_json, write_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.measure import module_of
from ddpdoctor.job.forks import preload
from ddpdoctor.launch import Launch

_POLL = 0.005
_MONITOR_SECONDS = 0.02


def main(folder_name: str) -> None:
    """Import, wait, fork, and write how it ended."""
    folder = Path(folder_name)
    tempfile.tempdir = str(folder)  # torch leaves pytorch-errorfile-*.pickle of ranks that fail
    order = read_json(folder / rank_files.LAUNCH)
    launch, measurements = Launch.from_json(order["launch"]), order["measurements"]
    _preload(measurements)
    write_json(folder / rank_files.READY, {"torch": sys.modules["torch"].__version__})
    while (go := read_json(folder / rank_files.GO)) is None:
        time.sleep(_POLL)
    write_json(folder / rank_files.ENDED, _launch(launch, measurements, folder, go["port"]))
    sys.stderr.flush()
    # Tearing down an interpreter that has torch in it takes half a second and has nothing left to do.
    os._exit(0)


def _preload(measurements: list[str]) -> None:
    torch = ("torch.distributed.launcher.api", "torch.nn.parallel", "torch.utils.data.distributed")
    preload([*torch, "ddpdoctor.group.worker", *map(module_of, measurements)])


def _launch(launch: Launch, measurements: list[str], folder: Path, port: int) -> dict[str, Any]:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from ddpdoctor.group import worker

    config = LaunchConfig(
        min_nodes=launch.nnodes,
        max_nodes=launch.nnodes,
        nproc_per_node=launch.nproc,
        run_id=os.environ.get("DDPDOCTOR_RUN", "ddpdoctor") if launch.nnodes == 1 else "ddpdoctor",
        rdzv_backend="static",
        rdzv_endpoint=f"{launch.master_addr}:{port}",
        rdzv_configs={"rank": launch.node_rank, "timeout": launch.timeout},
        max_restarts=0,
        monitor_interval=_MONITOR_SECONDS,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "output"), redirects=Std.ALL),
        local_addr=launch.master_addr if launch.nnodes == 1 else None,
    )
    exit_codes = _watch_exit_codes()
    error = None
    try:
        elastic_launch(config, worker.run)(launch.to_json(), measurements, str(folder))
    except ChildFailedError:
        pass  # the ranks say themselves what became of them
    except Exception as failed:  # noqa: BLE001 - the launch itself failed: the command reports it
        error = f"{type(failed).__name__}: {failed}"
    return {"error": error, "exit_codes": exit_codes}


def _watch_exit_codes() -> dict[int, int]:
    """The exit status of every forked rank by pid, filled in as they end: torchrun's engine tells only of the rank
    whose end it noticed first, which may be a victim."""
    codes: dict[int, int] = {}
    poll = Popen.poll

    def watch(self: Popen, flag: int = os.WNOHANG) -> int | None:
        if (code := poll(self, flag)) is not None:
            codes[self.pid] = code
        return code

    Popen.poll = watch  # type: ignore[method-assign]
    return codes

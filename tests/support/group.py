"""A live gloo group of forked ranks, for tests of measurements: the smallest launcher that shuts down cleanly."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.group.context import Context
from ddpdoctor.group.group_record import GroupRecord, Measured, RankRecord
from ddpdoctor.launch import Launch

DEADLINE = 200.0
_PAUSE_BEFORE_DESTROY = 0.2  # without it gloo's destructor aborts now and then


def record(measurement: str, values: Sequence[Any], **fields: Any) -> GroupRecord:
    """The record of a group in which rank r measured ``values[r]``; more measurements by keyword ``also``."""
    measured = {measurement: values, **fields.pop("also", {})}
    ranks = tuple(
        RankRecord(rank, host="node0", measured={name: Measured(one[rank]) for name, one in measured.items()})
        for rank in range(len(values))
    )
    return GroupRecord(Launch(nproc=len(values)), ranks, wanted=frozenset(measured), **fields)


def run_group(
    nproc: int,
    *modules: Any,
    fault: Callable[[int], None] | None = None,
    launch: Launch | None = None,
) -> GroupRecord:
    """Run the measurements of ``modules`` on forked ranks; ``fault(rank)`` may break one first."""
    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        launch = replace(launch or Launch(nproc=nproc, checkpoint_dir=folder), master_port=_free_port())
        workers = [
            fork.Process(target=_rank, args=(rank, launch, Path(folder), modules, fault))
            for rank in range(nproc)
        ]
        _run_until_done(workers)
        return _gathered(launch, Path(folder), modules)


def _run_until_done(workers: Sequence[Any]) -> None:
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + DEADLINE
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        if worker.is_alive():
            worker.kill()
            worker.join()


def _rank(rank: int, launch: Launch, folder: Path, modules: Sequence[Any], fault: Any) -> None:
    try:
        done = _measure(rank, launch, folder, modules, fault)
        (folder / f"{rank}.json").write_text(json.dumps(done))
        time.sleep(_PAUSE_BEFORE_DESTROY)
        dist.destroy_process_group()
    except BaseException:  # noqa: BLE001 - a forked rank must never run on into pytest
        (folder / f"{rank}.error").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def _measure(rank: int, launch: Launch, folder: Path, modules: Sequence[Any], fault: Any) -> dict[str, Any]:
    os.environ.update(_variables(rank, launch))
    dist.init_process_group("gloo", rank=rank, world_size=launch.nproc)
    context = Context(launch, rank, rank, launch.nproc, torch.device("cpu"), folder, step=lambda text: None)
    if fault:
        fault(rank)
    for module in modules:
        if hasattr(module, "begin"):
            module.begin(context)
    done = {}
    for module in modules:
        start = time.perf_counter()
        value = module.measure(context)
        done[_name(module)] = {"value": value, "seconds": time.perf_counter() - start}
    return done


def _variables(rank: int, launch: Launch) -> dict[str, str]:
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": launch.nproc,
        "LOCAL_RANK": rank,
        "LOCAL_WORLD_SIZE": launch.nproc,
        "GROUP_RANK": 0,
        "MASTER_PORT": launch.master_port,
    }
    return {**{name: str(value) for name, value in numbers.items()}, "MASTER_ADDR": launch.master_addr}


def _gathered(launch: Launch, folder: Path, modules: Sequence[Any]) -> GroupRecord:
    errors = [path.read_text() for path in sorted(folder.glob("*.error"))]
    assert not errors, errors[0]
    ranks = []
    for rank in range(launch.nproc):
        path = folder / f"{rank}.json"
        assert path.exists(), f"rank {rank} did not finish in {DEADLINE:.0f} s"
        done = {name: Measured(**one) for name, one in json.loads(path.read_text()).items()}
        ranks.append(RankRecord(rank, host="node0", measured=done, finished=True))
    return GroupRecord(launch, tuple(ranks), wanted=frozenset(_name(module) for module in modules))


def _name(module: Any) -> str:
    return str(module.__name__).rpartition(".")[2]


def _free_port() -> int:
    while True:
        port = random.randint(20000, 32000)  # below the ephemeral range
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port

"""Runs scripts as ranks of a rehearsal: imports torch once, then forks the ranks of one script after another.

    python ranks.py RANKS PORT RECORDS SCRIPT...

Ends with 1 if any script did; writes each rank's events and output into the folder RECORDS.
"""

import importlib.util
import json
import os
import runpy
import signal
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDER = HERE.parents[2] / "ddpdoctor" / "recorder"

LONGEST = 60.0
"""Seconds that a script may take on a busy machine."""


def rehearsal():
    """The package, loaded by path under a private name, as the recorder loads it."""
    spec = importlib.util.spec_from_file_location(
        "_private_recorder", RECORDER / "__init__.py", submodule_search_locations=[str(RECORDER)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return importlib.import_module("_private_recorder.rehearse")


def recorder(path):
    """A record function that writes one event a line."""

    def record(event):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": type(event).__name__, **asdict(event)}) + "\n")

    return record


def run_rank(script, rank, ranks, folder, port):
    """One rank, in a process of its own; never returns."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), FOLDER=str(folder),
    )  # fmt: skip
    output = os.open(folder / f"{script.stem}.{rank}.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = [str(script)]
    status = 1
    try:
        rehearsal().install(recorder(folder / f"{script.stem}.{rank}.json"))
        runpy.run_path(str(script), run_name="__main__")
        status = 0
    except BaseException:  # noqa: BLE001 - whatever ended the rank is its output
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(script, ranks, folder, port):
    """All ranks of one script; answers whether every one ended well."""
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            run_rank(script, rank, ranks, folder, port)
        children.append(child)
    return not any([_ended(child) for child in children])


def _ended(child):
    """The status of a rank, which is killed where it does not end."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch._dynamo  # every wrapper imports it, which takes longer than the script
    import torch.distributed.optim

    torch.set_num_threads(1)
    ranks, port = (int(number) for number in sys.argv[1:3])
    here = Path(sys.argv[3])
    ended = {Path(name).stem: run(Path(name), ranks, here, port) for name in sys.argv[4:]}
    (here / "ended.json").write_text(json.dumps(ended), encoding="utf-8")
    sys.exit(not all(ended.values()))

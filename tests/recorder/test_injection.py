"""The recorder inside real processes: what it sees of their ends, and that it leaves everything as it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpdoctor.trace.reader import Recorded, read_run

pytestmark = pytest.mark.slow

INJECT = Path(__file__).resolve().parents[2] / "ddpdoctor" / "recorder" / "inject"
JOIN = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""
LOOK_AROUND = """
import atexit, json, os, signal, sys, threading
before = list(sys.meta_path)
import torch
print(json.dumps({
    "path": sys.path,
    "excepthook": sys.excepthook is sys.__excepthook__,
    "handlers": [str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGABRT)],
    "threads": [thread.name for thread in threading.enumerate()],
    "loader": type(torch.__loader__).__name__,
    "spec": torch.__spec__.name,
    "own sitecustomize": getattr(sys.modules.get("sitecustomize"), "MINE", None),
    "random": [torch.manual_seed(7), torch.rand(3).tolist()][1],
    "main": sorted(name for name in vars(sys.modules["__main__"]) if not name.startswith("__")),
}))
"""


def run(script: Path, folder: Path, *arguments: str, recorded: bool = True, **environ: str):
    folder.mkdir(exist_ok=True)
    injected = {
        "DDPDOCTOR_RECORD": str(folder),
        "PYTHONPATH": f"{INJECT}{os.pathsep}{environ.get('PYTHONPATH', '')}",
    }
    own = {**os.environ, **environ, **(injected if recorded else {})}
    return subprocess.run(
        [sys.executable, *arguments, str(script)],
        env=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def write(folder: Path, text: str) -> Path:
    script = folder / "train.py"
    script.write_text(text)
    return script


def recorded(folder: Path) -> Recorded:
    return read_run(folder / "record")


def test_a_process_is_left_as_it_was(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("MINE = 7\n")
    script = write(tmp_path, LOOK_AROUND)
    seen = [
        run(script, tmp_path / "record", recorded=recorded, PYTHONPATH=str(own), PYTHONHASHSEED="0")
        for recorded in (True, False)
    ]
    assert json.loads(seen[0].stdout) == json.loads(seen[1].stdout)
    assert json.loads(seen[0].stdout)["own sitecustomize"] == 7
    assert seen[0].stderr == seen[1].stderr


def test_a_process_without_torch_is_not_recorded(tmp_path):
    done = run(write(tmp_path, "import sys; print(sys.meta_path[0].__class__.__name__)"), tmp_path / "record")
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "record").iterdir()) == []


ENDS = [
    pytest.param("print('done')", "returned", None, 0, id="last line"),
    pytest.param("sys.exit(3)", "exit", 3, 3, id="sys.exit"),
    pytest.param("sys.exit(None)", "exit", 0, 0, id="sys.exit of nothing"),
    pytest.param("os._exit(4)", "os._exit", 4, 4, id="os._exit"),
    pytest.param("raise KeyError('x')", "exception", None, 1, id="exception"),
    pytest.param(
        "sys.excepthook = lambda *a: None\nraise KeyError('x')", "exception", None, 1, id="own excepthook"
    ),
    pytest.param(
        "sys.excepthook = lambda *a: os._exit(17)\nraise KeyError('x')",
        "os._exit",
        17,
        17,
        id="own hard exit",
    ),
    pytest.param("os.close(1); os.close(2); os.chdir('/')", "returned", None, 0, id="closed stdout"),
    pytest.param("if not os.fork(): os._exit(0)\nos.wait()", "returned", None, 0, id="forks"),
    pytest.param(
        "import shutil; shutil.rmtree(os.environ['DDPDOCTOR_RECORD'])", None, None, 0, id="folder gone"
    ),
]


@pytest.mark.parametrize(("body", "how", "said", "status"), ENDS)
def test_how_a_script_ends(tmp_path, body, how, said, status):
    done = run(write(tmp_path, JOIN + body + "\n"), tmp_path / "record")
    assert done.returncode == status, done.stderr
    assert "_ddpdoctor" not in done.stderr
    if how is None:
        return
    (rank,) = recorded(tmp_path).ranks.values()
    assert (rank.exit.how, rank.exit.status) == (how, said)
    assert rank.groups[0].backend == "gloo"
    assert rank.groups[0].at.line == 3
    assert (rank.raised and rank.raised.type) == ("KeyError" if "raise KeyError" in body else None)
    assert rank.notes == ()


def test_an_exception_is_told_with_its_chain_and_the_users_line(tmp_path):
    body = """
def load():
    try:
        torch.zeros(2).view(3)
    except RuntimeError as error:
        raise ValueError("no data") from error
load()
"""
    run(write(tmp_path, JOIN + body), tmp_path / "record")
    raised = recorded(tmp_path).ranks[0].raised
    assert (raised.type, raised.message) == ("ValueError", "no data")
    assert (raised.at.line, raised.at.function) == (9, "load")
    assert [frame.function for frame in raised.frames] == ["<module>", "load"]
    assert raised.causes[0].startswith("RuntimeError: shape '[3]' is invalid")


SPAWNED = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[0]}.store", rank=rank, world_size=2)
    dist.barrier()
    if rank == 1:
        raise ValueError("boom")
if __name__ == "__main__":
    mp.spawn(work, (0,), nprocs=2)
"""


def test_ranks_of_spawn_are_told_apart(tmp_path):
    done = run(write(tmp_path, SPAWNED), tmp_path / "record")
    assert done.returncode == 1
    seen = recorded(tmp_path)
    assert sorted(seen.ranks) == [0, 1]
    assert (seen.ranks[1].raised.type, seen.ranks[1].raised.at.line) == ("ValueError", 7)
    assert [one.exit.how for one in seen.others] == ["exception"]


def test_killed_in_the_middle_it_keeps_what_was_flushed(tmp_path):
    body = "import signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    done = run(write(tmp_path, JOIN + body), tmp_path / "record")
    assert done.returncode == -9
    (rank,) = recorded(tmp_path).ranks.values()
    assert rank.groups[0].action == "init"
    assert rank.exit is None


def test_a_truncated_record_is_read_as_far_as_it_goes(tmp_path):
    run(write(tmp_path, JOIN), tmp_path / "record")
    (file,) = (tmp_path / "record").glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.index(b'"Exit"') + 3])
    (rank,) = recorded(tmp_path).ranks.values()
    assert rank.exit is None
    assert rank.groups[0].rank == 0

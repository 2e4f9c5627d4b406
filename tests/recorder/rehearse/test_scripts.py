"""GPU scripts of different styles run to their end on a machine without GPUs, unmodified."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import free_port

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
TABLE = HERE / "nccl_table.py"
DEADLINE = 280
STYLES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "spawn_tutorial")
ARM = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("ranks", {str(HERE / "ranks.py")!r})
ranks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ranks)
if os.environ.get("DDPDOCTOR_REHEARSE"):
    import torch
    from pathlib import Path
    record = ranks.recorder(Path(os.environ["RECORDS"]) / f"{{os.getpid()}}.json")
    ranks.rehearsal().install(record)
"""


def events(path):
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


def launch(folder, ranks, names):
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(HERE / "ranks.py"),
        str(ranks),
        str(free_port()),
        str(folder),
        *names,
    ]
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    subprocess.run(command, env=environ, timeout=DEADLINE, check=False, capture_output=True)


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """Every style, one launch for all: importing torch takes longer than a script."""
    folder = tmp_path_factory.mktemp("styles")
    launch(folder, 2, [*(str(SCRIPTS / f"{name}.py") for name in STYLES), str(TABLE)])
    return folder


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_nccl_takes_and_refuses_is_taken_and_refused(launched, tmp_path, ranks):
    folder = launched if ranks == 2 else tmp_path
    if ranks == 3:
        launch(folder, 3, [str(TABLE)])
    outputs = [(folder / f"{TABLE.stem}.{rank}.txt").read_text(encoding="utf-8") for rank in range(ranks)]
    assert outputs == ["as NCCL\n"] * ranks


@pytest.mark.parametrize("name", STYLES)
def test_a_script_runs_to_its_end_on_both_ranks(launched, name):
    for rank in range(2):
        output = (launched / f"{name}.{rank}.txt").read_text(encoding="utf-8")
        assert "Traceback" not in output
        used = [event for event in events(launched / f"{name}.{rank}.json") if event.get("how") == "use"]
        assert [event["index"] for event in used] == [rank]
        assert all(event["valid"] for event in used)


def test_every_rank_of_a_script_came_to_its_last_line(launched):
    ended = json.loads((launched / "ended.json").read_text(encoding="utf-8"))
    assert ended == dict.fromkeys((*STYLES, TABLE.stem), True)


def test_the_record_does_not_grow_with_steps(launched):
    assert all(len(events(path)) <= 6 for path in launched.glob("*.?.json"))


def test_what_cannot_be_shown_is_noted_once(launched):
    notes = [event for event in events(launched / "nanogpt_style.0.json") if event["kind"] == "Note"]
    assert ["compile" in note["text"] for note in notes] == [True]


def test_processes_that_a_script_spawns_are_rehearsed_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ARM, encoding="utf-8")
    environ = {
        **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
        "PYTHONPATH": str(tmp_path),
        "RECORDS": str(tmp_path),
        "DDPDOCTOR_REHEARSE": "1",
        "DDPDOCTOR_NPROC": "2",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "ignore", str(SCRIPTS / "spawn_tutorial.py"), str(free_port())]
    for _ in range(5):
        done = subprocess.run(
            command, env=environ, timeout=DEADLINE, check=False, capture_output=True, text=True
        )
        if "terminate called" not in done.stderr:
            break
        # Now and then gloo aborts a right program at its end, and that is no business of the rehearsal.
        for path in tmp_path.glob("*.json"):
            path.unlink()
    assert (done.returncode, done.stdout) == (0, "spawned 2\n"), done.stderr
    used = [event for path in tmp_path.glob("*.json") for event in events(path) if event.get("how") == "use"]
    assert sorted(event["index"] for event in used) == [0, 1]

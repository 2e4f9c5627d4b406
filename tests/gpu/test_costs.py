"""What the recorder costs a step on a GPU: no wait more and hardly any memory; the time is kept, and not judged."""

import json
from statistics import mean, median

import pytest

from tests.gpu.support import HERE, checked, examined, keep, on_gpu, plain

pytestmark = on_gpu

STEPS = HERE / "measured" / "steps.py"
RUNS = ("plain", "check", "watch", "plain again", "check again", "watch again")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Of each run what the script measured."""
    found = {}
    for name in RUNS:
        work = tmp_path_factory.mktemp(name.replace(" ", "-"))
        env = {"MEASURED": str(work / "measured.json")}
        if name.startswith("plain"):
            plain(STEPS, work, env)
        elif name.startswith("check"):
            checked(STEPS, work, "--full", "--keep-files", env=env)
        else:
            examined("watch-steps", "watch", "--nproc", "1", str(STEPS), cwd=work, env=env)
        found[name] = json.loads((work / "measured.json").read_text())
    figures = {
        name: {
            "median of a step": median(one["times"][100:]),
            "mean of a step": mean(one["times"][100:]),
            "first hundred": mean(one["times"][1:100]),
            "waits": one["waits"],
            "memory": one["memory"],
        }
        for name, one in found.items()
    }
    keep("costs.json", json.dumps(figures, indent=2))
    return figures


@pytest.mark.parametrize("command", ["check", "watch"])
def test_a_recorded_step_waits_for_the_gpu_as_often_as_a_plain_one(measured, command):
    assert measured[command]["waits"] == measured["plain"]["waits"]


@pytest.mark.parametrize("command", ["check", "watch"])
def test_the_recorder_takes_hardly_any_memory_of_the_gpu(measured, command):
    assert measured[command]["memory"] - measured["plain"]["memory"] < 64 << 20

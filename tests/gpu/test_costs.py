"""What the recorder costs a step on a GPU: it waits for the GPU no more often; the time is kept, and not judged."""

import json
from statistics import median

from tests.gpu.support import HERE, checked, keep, on_gpu, plain

pytestmark = on_gpu

STEPS = HERE / "measured" / "steps.py"


def test_a_recorded_step_waits_for_the_gpu_as_often_as_a_plain_one(tmp_path):
    measured = {}
    for name in ("plain", "recorded", "plain_again", "recorded_again"):
        work = tmp_path / name
        work.mkdir()
        env = {"MEASURED": str(work / "measured.json")}
        if name.startswith("plain"):
            plain(STEPS, work, env)
        else:
            checked(STEPS, work, "--full", env=env)
        measured[name] = json.loads((work / "measured.json").read_text())
    medians = {name: median(one["times"][100:]) for name, one in measured.items()}
    waits = {name: one["waits"] for name, one in measured.items()}
    keep("costs.json", json.dumps({"seconds of a step": medians, "waits a step": waits}, indent=2))
    assert waits["recorded"] == waits["plain"]

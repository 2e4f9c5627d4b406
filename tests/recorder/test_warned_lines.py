"""Warnings of torch about a line of the script name that line, and no frame of the recorder in between."""

import json

import pytest

from tests.recorder.trained import write
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

WARNED = """
import json, warnings
model = DDP(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
def warn(*_):
    warnings.warn("of the caller", stacklevel=2)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 1)
        warn()
WAYS = {
    "scheduler": lambda: scheduler.step(),
    "clip": lambda: nn.utils.clip_grad_norm(model.parameters(), 1.0),
    "own": lambda: Model(),
}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for way in WAYS.values():
        way()
with open(OUT, "w") as file:
    json.dump([[it.filename, it.lineno, str(it.message)] for it in caught], file)
"""


def test_warnings_name_the_line_of_the_script(tmp_path):
    out = tmp_path / "warned.json"
    script = write(tmp_path, WARNED.replace("OUT", repr(str(out))))
    ran = run_forked(script, tmp_path / "ran", nproc=1)
    assert ran.statuses == (0,), ran.errors
    warned = json.loads(out.read_text())
    lines = script.read_text().splitlines()
    assert len(warned) >= 2
    for file, line, message in warned:
        assert file == str(script), (file, message)
        assert "lambda" in lines[line - 1] or "warn()" in lines[line - 1], message

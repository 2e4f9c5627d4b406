"""No frame of the recorder is in a traceback that the script prints, formats or ends in."""

import json

import pytest

from tests.recorder.trained import write
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

CAUGHT = """
import json, sys, traceback
from torch.utils.data import DataLoader, Dataset, random_split
class Broken(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        raise ValueError("a sample")
class Loss(nn.Module):
    def forward(self, x):
        raise ValueError("a forward")
class Backward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        raise ValueError("a backward")
model = DDP(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def closure():
    raise ValueError("a closure")
def trained():
    out = model(torch.ones(1, 2))
    Backward.apply(out).sum().backward()
WAYS = {
    "collective": lambda: dist.all_reduce("no tensor"),
    "group": lambda: dist.new_group(["no rank"]),
    "init": lambda: dist.init_process_group("gloo"),
    "wrap": lambda: DDP("no module"),
    "forward": lambda: DDP(nn.Sequential(nn.Linear(2, 2), Loss()))(torch.ones(1, 2)),
    "shape": lambda: model(torch.ones(1, 3)),
    "backward": trained,
    "grad": lambda: torch.autograd.grad(torch.ones(1), torch.ones(1)),
    "step": lambda: optimizer.step(closure),
    "optimizer": lambda: torch.optim.SGD([], lr=0.1),
    "scheduler": lambda: torch.optim.lr_scheduler.StepLR("no optimizer", 1),
    "clip": lambda: nn.utils.clip_grad_norm_(["no parameter"], 1.0),
    "loss": lambda: F.cross_entropy(torch.ones(2, 2), torch.ones(3).long()),
    "loader": lambda: next(iter(DataLoader(Broken()))),
    "worker": lambda: next(iter(DataLoader(Broken(), num_workers=1))),
    "split": lambda: random_split([1, 2], [5]),
    "save": lambda: torch.save({}, "no/such/folder"),
    "load": lambda: torch.load("no such file"),
    "state": lambda: nn.Linear(2, 2).load_state_dict({}),
    "open": lambda: open("no such file"),
    "exit": lambda: sys.exit("an exit"),
}
def seen(way):
    try:
        way()
    except BaseException as error:
        cause, context = type(error.__cause__).__name__, type(error.__context__).__name__
        return [type(error).__name__, cause, context, traceback.format_exc()]
found = {name: seen(way) for name, way in WAYS.items()}
if rank == 0:
    with open("seen.json", "w") as file:
        json.dump(found, file)
"""


def test_a_traceback_that_the_script_formats_is_that_of_the_plain_run(tmp_path):
    script = write(tmp_path, CAUGHT)
    seen = []
    for record in (False, True):
        ran = run_forked(script, tmp_path / str(record), nproc=1, record=record, full=True)
        assert ran.statuses == (0,), ran.errors
        seen.append(json.loads(next((tmp_path / str(record)).rglob("seen.json")).read_text()))
    expected, found = seen
    assert found.keys() == expected.keys()
    for name, (kind, cause, context, text) in expected.items():
        assert found[name][:3] == [kind, cause, context], name
        assert frames(found[name][3]) == frames(text), name


def frames(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("File ")]


@pytest.mark.parametrize("rehearse", [False, True])
@pytest.mark.parametrize(
    "line", ["dist.all_reduce('no tensor')", "nn.Linear(2, 1)(torch.ones(1, 3))", "torch.load('no file')"]
)
def test_the_jobs_own_stderr_names_no_file_of_ours(line, rehearse, tmp_path):
    ran = run_forked(write(tmp_path, line), tmp_path / "ran", nproc=1, rehearse=rehearse)
    (text,) = ran.errors
    assert "Traceback" in text
    assert "recorder" not in text

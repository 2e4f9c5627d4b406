"""``check --exact``: the first update of all ranks, computed again by one process."""

from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.job.command import RECORD
from ddpdoctor.model import CheckResult, Outcome
from tests.support.command import in_process
from tests.support.forked import Ran, judged_again, run_forked

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
sampler = DistributedSampler(data)
layers = [torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)] if "norm" in sys.argv else [torch.nn.Linear(4, 4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, 4, sampler=sampler):
        optimizer.zero_grad()
        noise = torch.randn_like(x) if "noise" in sys.argv else 0.0
        torch.nn.functional.mse_loss(model(x + noise), y).backward()
        if "twice" in sys.argv:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
dist.destroy_process_group()
"""


def run(folder: Path, *arguments: str, exact: str = "keep", nproc: int = 2) -> Ran:
    (folder / "train.py").write_text(SCRIPT)
    return run_forked(folder / "train.py", folder / f"of_{nproc}", *arguments, nproc=nproc, exact=exact)


def outcome(ran: Ran) -> CheckResult:
    return next(result for result in ran.results if result.code == "DD228")


def compared(folder: Path, *arguments: str) -> Ran:
    """A run of two ranks, judged by what one process on their samples came to."""
    ran = run(folder, *arguments)
    replayed = run(folder, *arguments, exact=str(folder / "of_2" / "run" / RECORD), nproc=1)
    return judged_again(ran, replace(ran.trace, exact=replayed.trace.ranks[0].recording.exact))


def test_a_right_script_has_the_gradient_of_one_process(tmp_path):
    judged = compared(tmp_path)
    assert outcome(judged).outcome is Outcome.PASS
    assert "is 1 times that of one process on the same samples" in outcome(judged).text
    assert judged.findings == ()


def test_a_factor_is_proven(tmp_path):
    (finding,) = compared(tmp_path, "twice").findings
    assert finding.code == "DD211"
    proof = [evidence.text for evidence in finding.evidence if evidence.text.startswith("proven: ")]
    assert proof[0].startswith("proven: the gradient of the first update is 2 times that of one process")


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("norm", "BatchNorm1d takes its statistics from the batch of each rank"),
        ("noise", "its first update draws random numbers, on each rank its own"),
    ],
)
def test_what_rightly_differs_is_not_compared(tmp_path, argument, reason):
    result = outcome(run(tmp_path, argument))
    assert (result.outcome, result.reason) == (Outcome.SKIP, reason)


def test_a_launch_line_cannot_be_run_in_one_process(tmp_path):
    done = in_process("check", "--exact", "--", "torchrun", "train.py", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "--exact runs the script in a single process" in done.err

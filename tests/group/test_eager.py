"""The stand-in for torch's compiler, in a process of its own: what is imported cannot be taken back."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment, free_port

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from ddpdoctor.group.worker import without_compiler

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
without_compiler()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
before = model.module.weight.clone()
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
print("trained", not torch.equal(before, model.module.weight))
print("compiler", "torch._dynamo.convert_frame" in sys.modules)
torch._dynamo.config
print("compiler", "torch._dynamo.convert_frame" in sys.modules)
"""


def test_a_rank_trains_without_the_compiler_and_anything_else_brings_it_in(tmp_path: Path) -> None:
    program = PROGRAM.format(port=free_port())
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stdout.split("\n")[:3] == ["trained True", "compiler False", "compiler True"], done.stderr

"""The example of CONTRIBUTING.md, as it stands there: a patch with an event, and a check that uses it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.packaging.documents import ROOT, blocks_of

pytestmark = pytest.mark.slow

SCRIPT = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.empty_cache()
dist.destroy_process_group()
"""
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if "empty_cache" in line)


def test_a_patch_and_a_check_are_all_that_a_new_fact_takes(tmp_path):
    skipped = shutil.ignore_patterns("__pycache__")
    for package in ("ddpdoctor", "checks"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=skipped)
    files = [block for block in blocks_of("CONTRIBUTING.md", "python") if block.startswith("# ")]
    assert len(files) == 2
    for text in files:
        place = tmp_path / text.splitlines()[0].removeprefix("# ")
        assert not place.exists()
        place.write_text(text)
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "ddpdoctor",
        "check",
        "--nproc",
        "2",
        "--select",
        "DD699",
        "--format",
        "json",
    ]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*command, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["code"], finding["ranks"], finding["where"]["line"]) == ("DD699", [0, 1], LINE)

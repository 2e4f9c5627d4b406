import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.documents import ROOT, Block, blocks, blocks_of, users_environ
from tests.support.processes import carrying, wait_until

NOT_RUN = "not run here: "
HOST_ALONE = "only the host here: "
"""Marks a check that differs by its options from one that runs whole."""
PRINTED = "printed"
"""Marks lines that the command before them prints, some of many."""
COMMANDS = blocks("bash", "console", "sh", "shell")
RUN = [block for block in COMMANDS if not block.mark.startswith(NOT_RUN)]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-euo", "pipefail", "-c", block.text]
    return subprocess.run(shell, cwd=folder, env=users_environ(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("document", sorted({block.document for block in RUN}))
def test_a_command_in_the_documents_works_as_it_stands(document, checkout):
    printed = ""
    for block in blocks("bash", "console", "sh", "shell", "text"):
        if block.document != document:
            continue
        if block.mark == PRINTED:
            assert [line for line in block.text.splitlines() if same(line) not in same(printed)] == []
        elif block in RUN:
            done = run(block, host_alone(checkout) if block.mark.startswith(HOST_ALONE) else checkout)
            expected = int(block.mark.removeprefix("exit ")) if block.mark.startswith("exit ") else 0
            assert done.returncode == expected, block.text + done.stdout + done.stderr
            wait_until(lambda: not carrying(str(checkout), "PWD"))  # nothing is left running
            printed = done.stdout


def host_alone(checkout: Path) -> Path:
    """A folder in which a check examines the host alone."""
    folder = checkout / "host-alone"
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text('[tool.ddpdoctor]\nselect = ["host"]\n')
    return folder


def same(text: str) -> str:
    """The words of a report in one line, without what differs between machines and moments."""
    return " ".join(layout(text))


def test_a_command_that_is_not_run_whole_says_why():
    reasons = [block.mark.partition(": ")[2] for block in COMMANDS if ": " in block.mark]
    assert all(len(reason.split()) > 2 for reason in reasons)


def test_every_invariant_names_a_test_that_exists():
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) > 10
    assert [(file, name) for file, name in named if f"def {name}(" not in (ROOT / file).read_text()] == []


def test_every_place_of_the_code_map_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(
        r"^\| (`[^|]*) \|", text.partition("## Code map")[2].partition("## Invariants")[0], re.MULTILINE
    )
    places = [place.partition("<")[0] for row in rows for place in re.findall("`([^`]+)`", row)]
    assert [p for p in places if not ((ROOT / p).exists() or (ROOT / "ddpdoctor" / p).exists())] == []
    rooms = {f"ddpdoctor/{path.parent.name}/" for path in (ROOT / "ddpdoctor").glob("*/__init__.py")}
    assert rooms <= set(places)


def test_ci_runs_the_readmes_command_for_the_tests():
    (command,) = [text.strip() for text in blocks_of("README.md", "bash") if "pytest" in text]
    assert command in (ROOT / ".ci" / "run").read_text()


def test_ci_is_executable_and_sound():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
)
def test_every_link_leads_to_a_file(document):
    for target in LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), target


SCRIPT = """\
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
drawn = torch.Generator().manual_seed(0)
data = TensorDataset(torch.randn(48, 8, generator=drawn), torch.randint(0, 3, (48,), generator=drawn))
sampler = DistributedSampler(data)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters())

def main():
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, 4, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model.module(x), y).backward()
            optimizer.step()
        torch.save(model.module.state_dict(), "ckpt.pt")

main()
dist.destroy_process_group()
"""


def test_the_readmes_report_is_what_the_command_prints(tmp_path):
    (shown,) = blocks_of("README.md", "text")
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "ddpdoctor", "check", "--ignore", "host,group", "train.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=users_environ(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    printed, expected = layout(done.stdout), layout(shown)
    assert printed[: len(expected)] == expected


def layout(report: str) -> list[str]:
    """The words of a report, without what differs between machines and moments."""
    return re.sub(r"\d+", "0", report).split()

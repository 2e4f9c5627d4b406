import getpass
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.documents import ROOT, Block, blocks, blocks_of, users_environ

NOT_RUN = "not run here: "
COMMANDS = blocks("bash", "console", "sh", "shell")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-euo", "pipefail", "-c", block.text]
    return subprocess.run(shell, cwd=folder, env=users_environ(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "block",
    [block for block in COMMANDS if not block.mark.startswith(NOT_RUN)],
    ids=lambda block: f"{block.document}: {block.text.splitlines()[0]}",
)
def test_a_command_in_the_documents_works_as_it_stands(block, checkout):
    done = run(block, checkout)
    expected = int(block.mark.removeprefix("exit ")) if block.mark.startswith("exit ") else 0
    assert done.returncode == expected, done.stdout + done.stderr


def test_a_command_that_is_not_run_here_says_why():
    reasons = [block.mark.removeprefix(NOT_RUN) for block in COMMANDS if block.mark.startswith(NOT_RUN)]
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


OLD_JOB = """
import socket
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    listener.accept()
"""


@pytest.fixture
def taken_port(tmp_path):
    """A port that `python old_job.py` holds."""
    (tmp_path / "old_job.py").write_text(OLD_JOB)
    command = ["python", "old_job.py"]
    with subprocess.Popen(
        command, executable=sys.executable, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        yield job.stdout.readline().strip()
        job.kill()


def test_the_readmes_report_is_what_the_command_prints(taken_port, tmp_path):
    (shown,) = blocks_of("README.md", "text")
    options = ["--backend", "gloo", "--select", "DD001,DD002,DD004", "--master-port", taken_port]
    command = [sys.executable, "-m", "ddpdoctor", "check", "--nproc", "4", *options]
    done = subprocess.run(
        command, cwd=tmp_path, env=users_environ(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert layout(done.stdout) == layout(shown)


def layout(report: str) -> list[str]:
    """The words of a report, without what differs between machines and moments."""
    text = re.sub(rf"\b({getpass.getuser()}|ana)\b", "USER", report)
    text = re.sub(r"/\S*ddpdoctor-\w+", "FOLDER", text)
    text = re.sub(r" +\d+\.\d s$", "", text, flags=re.MULTILINE)
    return re.sub(r"\d+", "0", text).split()

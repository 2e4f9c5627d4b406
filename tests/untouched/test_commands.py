"""Each command that runs a script leaves its folder as it was, the Python function and pytest's fixture, too."""

import sys
from pathlib import Path

import pytest

from tests.support.command import ddpdoctor, python
from tests.untouched.support import state
from tests.untouched.test_training import SCRIPT

pytestmark = pytest.mark.slow
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
QUIET = ("--ignore", "host,group", "-q")
CALL = "import ddpdoctor; ddpdoctor.check('train.py', nproc=2, ignore='host,group')"
TEST = "def test_it(ddp_check):\n    ddp_check('train.py', nproc=2, ignore='host,group')\n"
SAVE = '    torch.save(model.module.state_dict(), "best.pt")\n'
GUARDED, EVERY_RANK = f"if rank == 0:\n{SAVE}", f"{SAVE.strip()}\nif rank == 0:\n"
"""What makes every rank write one checkpoint, for a patch."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which a patch cures something, with files of an earlier run."""
    folder = tmp_path / "project"
    folder.mkdir()
    text = SCRIPT.read_text()
    assert text.count(GUARDED) == 1
    (folder / "train.py").write_text(text.replace(GUARDED, EVERY_RANK))
    for name in ("best.pt", "history.csv", "gone.txt"):  # of an earlier run
        (folder / name).write_text("earlier")
    return folder


def run(folder: Path, *words: str) -> None:
    """Run Python in the folder, and have it leave no bytecode and no cache of its own there."""
    done = python(*words, cwd=folder, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert done.status in (0, 1), done.out + done.err
    assert "DD402" in done.out + done.err or words == ("-c", CALL)


COMMANDS = {
    "check": ("check", *QUIET, "train.py"),
    "a rehearsal": ("check", *QUIET, "--rehearse", "--world-size", "8", "train.py"),
    "patches": ("check", *QUIET, "--fix", "train.py"),
    "a launch line": ("check", *QUIET, "--", *TORCHRUN, "train.py"),
    "the source alone": ("check", "-q", "--no-run", "train.py"),
}
JOURNAL = {"DDPDOCTOR_NO_VIEW": "1"}


@pytest.mark.parametrize(
    ("command", "environ"),
    [*((command, {}) for command in COMMANDS), ("a rehearsal", JOURNAL), ("a launch line", JOURNAL)],
    ids=str,
)
def test_a_command(command: str, environ: dict[str, str], project: Path) -> None:
    before = state(project)
    done = ddpdoctor(*COMMANDS[command], cwd=project, env=environ)
    assert done.status == 1, done.out + done.err
    assert "DD402" in done.out
    assert state(project) == before


def test_a_demonstration_leaves_its_scripts_alone(tmp_path: Path) -> None:
    done = ddpdoctor("demo", "DD402", cwd=tmp_path)
    assert done.status in (0, 1), done.out + done.err
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".py"}


def test_a_function_of_python(project: Path) -> None:
    before = state(project)
    run(project, "-c", CALL)
    assert state(project) == before


def test_the_fixture_of_pytest(project: Path) -> None:
    (project / "test_train.py").write_text(TEST)
    before = state(project)
    run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_train.py")
    assert state(project) == before

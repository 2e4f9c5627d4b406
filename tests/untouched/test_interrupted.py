"""Each command that runs a script leaves its folder as it was where Ctrl-C or SIGTERM ends it, at any moment."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import SECONDS, environment, python
from tests.support.processes import carrying, wait_until
from tests.untouched.support import state
from tests.untouched.test_commands import CALL, COMMANDS, JOURNAL, TEST, project

__all__ = ["project"]
pytestmark = pytest.mark.slow
MARK = "DDPDOCTOR_TEST"
WORDS = {
    **{name: ("-m", "ddpdoctor", *COMMANDS[name]) for name in ("check", "patches", "a launch line")},
    "a kept run": ("-m", "ddpdoctor", "fix"),
    "a demonstration": ("-m", "ddpdoctor", "demo", "DD402", "--folder", "../demo"),
    "a function of Python": ("-c", CALL),
    "the fixture of pytest": ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_train.py"),
}


def has_begun(temporary: Path) -> bool:
    """Whether a rank records."""
    return any(files for place, _, files in os.walk(temporary) if Path(place).name == "record")


def interrupt(folder: Path, words: tuple[str, ...], number: int, env: dict[str, str], *, begun: bool) -> None:
    """Send the signal, Ctrl-C to the whole process group, and wait until nothing of the command is left."""
    temporary = folder.parent / "tmp"
    temporary.mkdir()
    mark = f"{os.getpid()}-{folder}"
    environ = environment({MARK: mark, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1", **env})
    with subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environ, start_new_session=True, stderr=subprocess.PIPE
    ) as command:
        if begun:
            wait_until(lambda: command.poll() is not None or has_begun(temporary), SECONDS)
        time.sleep(random.uniform(0, 2 if begun else 8))
        with contextlib.suppress(ProcessLookupError):  # it is over, on a machine with nothing else to do
            (os.killpg if number == signal.SIGINT else os.kill)(command.pid, number)
        command.communicate(timeout=SECONDS)
    wait_until(lambda: not carrying(mark, MARK), SECONDS)


@pytest.mark.parametrize(
    ("command", "begun", "number", "environ"),
    [
        ("check", True, signal.SIGTERM, {}),
        ("check", False, signal.SIGINT, {}),
        ("check", True, signal.SIGINT, JOURNAL),
        ("patches", False, signal.SIGTERM, {}),
        *((command, True, signal.SIGINT, {}) for command in WORDS if command != "check"),
    ],
    ids=str,
)
def test_its_folder_is_as_it_was(
    command: str, begun: bool, number: int, environ: dict[str, str], project: Path
) -> None:
    (project / "test_train.py").write_text(TEST)
    words = WORDS[command]
    if command == "a kept run":
        (project.parent / "kept").mkdir()
        words = (*words, str(kept_run(project, project.parent / "kept")))
    before = state(project)
    interrupt(project, words, number, environ, begun=begun)
    assert state(project) == before
    demo = project.parent / "demo"
    assert {path.suffix for path in demo.rglob("*") if path.is_file()} <= {".py"}


def kept_run(project: Path, temporary: Path) -> Path:
    """The folder of a run in which something was found."""
    env = {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    done = python(*WORDS["check"], cwd=project, env=env)
    assert done.status == 1, done.out + done.err
    (folder,) = temporary.iterdir()
    return folder

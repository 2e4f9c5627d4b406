"""What every test on a GPU needs: whether there is one, and a folder for what is worth keeping."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.command import SECONDS, Done, ddpdoctor, environment

HERE = Path(__file__).parent
KEPT = "DDPDOCTOR_GPU_OUTPUT"
"""The variable that names the folder which ``python -m tests.gpu`` packs at its end."""
GPUS = sorted(Path("/dev").glob("nvidia[0-9]*"))
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU on this machine"),
]


def keep(name: str, text: str) -> None:
    """Keep a text for those who read the results."""
    if KEPT in os.environ:
        path = Path(os.environ[KEPT]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def examined(name: str, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """``ddpdoctor`` with these arguments and a report as JSON, which is kept."""
    command, *words = arguments
    done = ddpdoctor(command, "--format", "json", "--quiet", *words, cwd=cwd, env=env)
    keep(f"{name}.json", done.out)
    keep(f"{name}.stderr", done.err)
    return done


def checked(script: Path, cwd: Path, *options: str, env: Mapping[str, str] | None = None) -> Done:
    """``ddpdoctor check`` of a script on one rank, without the host and the group."""
    words = ("--ignore", "host,group", "--nproc", "1", *options, str(script))
    return examined("-".join((script.stem, *options)), "check", *words, cwd=cwd, env=env)


def plain(script: Path, cwd: Path, env: Mapping[str, str], nproc: int = 1) -> str:
    """The output of a script under torchrun alone, which must end well."""
    command = ["torchrun", "--standalone", "--nproc-per-node", str(nproc), str(script)]
    done = subprocess.run(
        command, cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    keep(f"{script.stem}-plain.txt", done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout

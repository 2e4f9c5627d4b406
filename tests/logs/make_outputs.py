"""Makes the files of ``outputs/`` again: real failures on gloo, without the names of the machine that they ran on.

    python -m tests.logs.make_outputs [NAME...]

Takes some minutes. Each failure is one file; those of ``FOLDERS`` are a folder as ``torchrun --log-dir`` writes it.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE / "failing.py"
OUTPUTS = HERE / "outputs"
SECONDS = 90

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
PLAIN = ("--nproc-per-node", "2")
EIGHT = ("--nproc-per-node", "8")
TEE = (*PLAIN, "--tee", "3", "--log-dir", "logs")
FOLDER = (*PLAIN, "--redirects", "3", "--log-dir", "logs")

LAUNCHES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    name: (name, PLAIN, {})
    for name in (
        "healthy", "chained", "uneven", "mismatch", "rank_0_alone", "long_work", "unused", "ready_twice",
        "model_differs", "truncated", "prefix", "full_disk", "hangup", "memory", "files", "worker_raises",
        "worker_killed", "killed_sigkill", "killed_sigsegv", "killed_sigbus", "killed_sigabrt", "killed_sigterm",
    )
} | {
    "exception_8": ("exception", EIGHT, {}),
    "exception_tee": ("exception", TEE, {}),
    "exception_folder": ("exception", FOLDER, {}),
    "exception_log_info": ("exception", PLAIN, {"TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "INFO"}),
    "unused_tee": ("unused", TEE, {"TORCH_DISTRIBUTED_DEBUG": "INFO"}),
    "healthy_8_log_info": ("healthy", EIGHT, {"TORCH_CPP_LOG_LEVEL": "INFO"}),
    "killed_sigkill_tee": ("killed_sigkill", TEE, {}),
    "worker_raises_folder": ("worker_raises", FOLDER, {}),
}  # fmt: skip
"""By the name of the output: what fails, torchrun's options, and the environment."""


def main(names: list[str]) -> None:
    special = {
        "port_taken": port_taken,
        "refused": refused,
        "variables": variables,
        "shared_memory": shared_memory,
    }
    for name in names or [*LAUNCHES, *special]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            if name in special:
                text = special[name]()
            else:
                failure, options, environment = LAUNCHES[name]
                text = run([*TORCHRUN, *options, str(SCRIPT), failure], environment)
            keep(name, text, Path(folder))
            print(name, flush=True)


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """The output of a command, with both streams in one, as a terminal has them."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MASTER_", "RANK", "WORLD_"))
    }
    environ |= {"OMP_NUM_THREADS": "1"} | (environment or {})
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.communicate()[0]


def keep(name: str, text: str, folder: Path) -> None:
    """Write the output below ``outputs/``, without the names of this machine."""
    target = OUTPUTS / name
    shutil.rmtree(target, ignore_errors=True)
    if not name.endswith("_folder"):
        (OUTPUTS / f"{name}.log").write_text(neutral(text, folder))
        return
    target.mkdir()
    (target / "launcher.log").write_text(neutral(text, folder))
    for file in sorted((folder / "logs").rglob("*")):
        if file.is_file() and file.stat().st_size:
            to = target / file.relative_to(folder / "logs").as_posix().replace(file.parts[-4], "run")
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(neutral(file.read_text(errors="replace"), folder))


def neutral(text: str, folder: Path) -> str:
    """The text with other names for this machine's host, user, folders and Python."""
    import torch

    packages = str(Path(torch.__file__).parents[1])
    for found, shown in (
        (str(SCRIPT), "/home/user/train.py"),
        (packages, "/opt/venv/lib/python3.11/site-packages"),
        (str(Path(os.__file__).parent), "/usr/lib/python3.11"),
        (str(folder), "/home/user"),
        (sys.executable, "/opt/venv/bin/python"),
        (str(HERE.parents[1]), "/home/user/project"),
        (socket.getfqdn(), "node-a"),
        (socket.gethostname(), "node-a"),
    ):
        text = text.replace(found, shown)
    text = re.sub(rf"\b{re.escape(getpass.getuser())}@", "user@", text)
    return re.sub(r"(?m)^.*Failed to initialize NumPy.*\n(?:  .*\n)?", "", text)


@contextmanager
def listener() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        yield taken.getsockname()[1]


def port_taken() -> str:
    with listener() as port:
        launch = [sys.executable, "-m", "torch.distributed.run", "--master-port", str(port), *PLAIN]
        return run([*launch, str(SCRIPT), "healthy"])


def refused() -> str:
    """A rank 1 whose rank 0 is not there."""
    environment = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}
    return run([sys.executable, str(SCRIPT), "healthy"], environment)


def variables() -> str:
    return run([sys.executable, str(SCRIPT), "variables"])


def shared_memory() -> str:
    """With a /dev/shm of 64 kB, in a mount namespace of its own; needs root."""
    command = " ".join([*TORCHRUN, *PLAIN, str(SCRIPT), "shared_memory"])
    return run(
        ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec {command}"]
    )


if __name__ == "__main__":
    main(sys.argv[1:])

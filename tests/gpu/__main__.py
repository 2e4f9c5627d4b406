"""Runs everything that needs a GPU, within one command's time, and packs what is worth keeping.

python -m tests.gpu FOLDER               # results.xml, costs.xml, summary.txt and kept.tar.gz in it
python -m tests.gpu FOLDER -- -k sick    # more for pytest

It needs no network: torch, pytest with pytest-timeout and pytest-xdist, typer, rich, psutil, nvidia-ml-py and py-spy
have to be there.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.gpu.support import GPUS, KEPT
from tests.support.command import ROOT

FACTS = {
    "nvidia-smi.txt": ("nvidia-smi", "-q"),
    "torch.txt": (sys.executable, "-m", "torch.utils.collect_env"),
    "pip.txt": (sys.executable, "-m", "pip", "list"),
    "host.txt": (sys.executable, "-m", "ddpdoctor", "check", "--select", "host", "-v"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests that need a GPU.")
    parser.add_argument("output", type=Path, metavar="FOLDER")
    parser.add_argument("--workers", type=int, default=8, metavar="N", help="pytest processes at a time")
    parser.add_argument("pytest", nargs="*", help="more for pytest, behind --")
    arguments = parser.parse_args()
    if not GPUS:
        print("no NVIDIA GPU on this machine", file=sys.stderr)
        return 2
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kept:
        for name, command in FACTS.items():
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            Path(kept, name).write_text(done.stdout + done.stderr)
        options = ("-m", "gpu", "-p", "no:cacheprovider", "--timeout", "300", "--durations", "15")
        command = (sys.executable, "-m", "pytest", *options, *arguments.pytest)
        environ = {**os.environ, KEPT: kept}
        output = arguments.output
        several = ("-n", str(arguments.workers), "--ignore", "tests/gpu/test_costs.py", "tests/gpu")
        parts = (
            (*several, f"--junitxml={output / 'results.xml'}"),
            ("tests/gpu/test_costs.py", f"--junitxml={output / 'costs.xml'}"),  # alone, since it measures
        )
        try:
            with (output / "summary.txt").open("w") as summary:
                statuses = [
                    subprocess.run(
                        (*command, *words),
                        cwd=ROOT,
                        env=environ,
                        stdout=summary,
                        stderr=subprocess.STDOUT,
                        check=False,
                    ).returncode
                    for words in parts
                ]
        finally:  # also after Ctrl-C, or where the time is over
            with tarfile.open(output / "kept.tar.gz", "w:gz") as archive:
                archive.add(kept, "kept")
    print((arguments.output / "summary.txt").read_text()[-6000:])
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())

"""Runs the scripts of the frameworks in an environment of its own, which is made once and kept.

python -m tests.frameworks                             # before each release, from the repository's root
python -m tests.frameworks --python 3.12 --torch 2.15.0 -- -k accelerate
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.versions import ROOT, Missing, environment, passes

FRAMEWORKS = ("lightning", "accelerate", "transformers", "pytorch-ignite", "hydra-core", "ray[train]")
WRITERS = ("tensorboard", "safetensors", "h5py", "requests")
"""What else tests/untouched writes files with."""

TESTS = ("tests/frameworks", "tests/untouched/test_libraries.py", "tests/untouched/test_downloads.py")


def main() -> int:
    parser = argparse.ArgumentParser(description="Check right and sick scripts of frameworks.")
    parser.add_argument("--python", default="3.11", metavar="VERSION")
    parser.add_argument("--torch", default="2.13.0", metavar="VERSION")
    parser.add_argument(
        "--environment", type=Path, default=ROOT / ".versions" / "frameworks", metavar="FOLDER"
    )
    parser.add_argument("pytest", nargs="*", help="more for pytest, behind --")
    arguments = parser.parse_args()
    try:
        python = environment(arguments.environment, arguments.python, arguments.torch)
        subprocess.run([python, "-m", "pip", "install", "-q", *FRAMEWORKS, *WRITERS], check=True)
    except (Missing, subprocess.CalledProcessError) as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0 if passes(python, (*TESTS, *arguments.pytest)) else 1


if __name__ == "__main__":
    sys.exit(main())

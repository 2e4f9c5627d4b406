"""Runs the fast tests, the sick and the healthy scripts with the Pythons and torches that pyproject.toml allows.

    python tests/versions.py                        # all of PAIRS
    python tests/versions.py 3.10:2.4.1 3.12:newest # these
    python tests/versions.py --environments /tmp/versions 3.13:newest

Each pair takes half an hour, in an environment of its own, which is made once and kept: torch from PyPI brings several
gigabytes. A Python is looked for on PATH as python3.10 and so on, and among those of pyenv. Ends with 1 where a test
failed, with 2 where a Python is not there or torch cannot be installed.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAIRS = ("3.10:2.4.1", "3.12:newest", "3.13:newest")
"""The oldest Python with the oldest torch, and the newest torch with newer ones. CI runs what lies between."""
TESTS = (("-m", "not slow"), ("-m", "slow", "tests/sick", "tests/healthy"))
"""The corpora whole: a sample once missed what torch 2.14 and Python 3.13 do in another way."""


class Missing(Exception):
    """A Python or a torch is not to be had here."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run tests with other Pythons and torches.")
    parser.add_argument(
        "pairs", nargs="*", default=PAIRS, metavar="PYTHON:TORCH", help=f"default: {' '.join(PAIRS)}"
    )
    parser.add_argument("--environments", type=Path, default=ROOT / ".versions", metavar="FOLDER")
    arguments = parser.parse_args()
    failed = []
    for pair in arguments.pairs:
        version, _, torch = pair.partition(":")
        try:
            python = environment(
                arguments.environments / f"py{version}-torch{torch or 'newest'}", version, torch
            )
        except Missing as reason:
            print(f"{pair}: {reason}", file=sys.stderr)
            return 2
        failed += [f"{pair}: pytest {' '.join(words)}" for words in TESTS if not passes(python, words)]
    print(*(failed or ["all passed"]), sep="\n")
    return int(bool(failed))


def environment(folder: Path, version: str, torch: str) -> Path:
    """The Python of an environment that has ddpdoctor, editable, its tests' dependencies and this torch."""
    python = folder / "bin" / "python"
    wanted = "torch" if torch in ("", "newest") else f"torch=={torch}"
    try:
        if not python.exists():
            subprocess.run([interpreter(version), "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", wanted, "-e", f"{ROOT}[dev]"], check=True)
    except subprocess.CalledProcessError as error:
        raise Missing(f"{folder} cannot be made: {error}") from None
    return python


def interpreter(version: str) -> Path:
    """A Python of this version."""
    on_path = shutil.which(f"python{version}")
    # pyenv has a python3.10 on PATH that starts only where that version is selected.
    if on_path and subprocess.run([on_path, "-c", ""], capture_output=True, check=False).returncode == 0:
        return Path(on_path)
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not installed:
        raise Missing(f"no python{version} on PATH, and none of pyenv")
    return installed[-1]


def passes(python: Path, words: tuple[str, ...]) -> bool:
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *words]
    print("$", *command, flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

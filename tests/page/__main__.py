"""Looks at pages in a headless Chromium, and with axe-core, which npm fetches once. CI does not run it.

python -m tests.page                     # before each release, from the repository's root
python -m tests.page --look FOLDER       # also keeps screenshots of each page, light and dark, wide and narrow
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.page.browser import program

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".versions" / "page"


def axe() -> str:
    """The script of axe-core; empty where it cannot be had."""
    script = AXE / "node_modules" / "axe-core" / "axe.min.js"
    npm = shutil.which("npm")
    if not script.exists() and npm:
        AXE.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [npm, "install", "--silent", "--no-audit", "--no-fund", "axe-core"], cwd=AXE, check=False
        )
    return str(script) if script.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Look at pages in a headless Chromium.")
    parser.add_argument("--look", type=Path, default=Path(), metavar="FOLDER", help="keep screenshots there")
    parser.add_argument("pytest", nargs="*", help="more for pytest, behind --")
    arguments = parser.parse_args()
    chromium = program()
    if chromium is None:
        print("no Chromium is installed", file=sys.stderr)
        return 2
    look = str(arguments.look.resolve()) if arguments.look.name else ""
    if look:
        arguments.look.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "CHROMIUM": chromium, "AXE": axe(), "LOOK": look}
    command = [sys.executable, "-m", "pytest", "-q", "tests/page", *arguments.pytest]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""From the last progress of a job that hangs to the end of ``ddpdoctor check`` with its verdict, for each script.

    python benchmarks/hang_to_verdict.py [--nproc 2] [--nproc 3] [SCRIPT...]

Each script of tests/sick/hangs stands still until gloo's default timeout of 30 minutes. The last progress is the last
event that a rank recorded of its own doing. Limit: 10 s. A script counts as found where the codes are those that it
expects; it is run with the flight recorder switched off, so that only records and stacks tell.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from limits import tell

ROOT = Path(__file__).parents[1]
_NO_PROGRESS = ("Site", "Note", "Raised", "Exit")
"""Kinds of events that the background thread of a rank may write while it stands, and those of its end."""


def main() -> None:
    """Run every script and print a line for each."""
    options = _parse()
    worst, missed = 0.0, 0
    for script in options.scripts:
        for nproc in options.nproc:
            if nproc < _least(script):
                continue
            seconds, codes = measure(script, nproc)
            wanted = set(re.findall(r"# expect: (DD\d{3})", script.read_text()))
            worst, missed = max(worst, seconds), missed + (codes != wanted)
            verdict = ", ".join(sorted(codes)) or "nothing"
            print(f"{seconds:6.1f} s  {nproc} ranks  {verdict:8} {script.stem}", flush=True)
    print(f"{missed} not as expected")
    tell("verdict", worst)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scripts", nargs="*", type=Path)
    parser.add_argument("--nproc", type=int, action="append")
    options = parser.parse_args()
    options.nproc = options.nproc or [3]
    options.scripts = options.scripts or sorted((ROOT / "tests" / "sick" / "hangs").glob("dd*.py"))
    return options


def _least(script: Path) -> int:
    match = re.search(r"# at least (\d) ranks", script.read_text())
    return int(match[1]) if match else 2


def measure(script: Path, nproc: int) -> tuple[float, set[str]]:
    """Seconds from the last progress to the end of the command, and the codes above info."""
    with tempfile.TemporaryDirectory() as place:
        command = [
            sys.executable,
            "-m",
            "ddpdoctor",
            "check",
            "--nproc",
            str(nproc),
            "--ignore",
            "host,group",
        ]
        command += ["--keep", "--format", "json", "-q", str(script.resolve())]
        environ = {**os.environ, "TMPDIR": place, "PYTHONPATH": str(ROOT), "TORCH_FR_BUFFER_SIZE": "0"}
        done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True, check=False)
        ended = time.monotonic()
        report = json.loads(done.stdout)
        codes = {finding["code"] for finding in report["findings"] if finding["level"] != "info"}
        return ended - max(_progress(Path(report["run"]["folder"])), default=ended), codes


def _progress(folder: Path) -> Iterator[float]:
    """The times, on the monotonic clock, of what ranks did."""
    texts = (file.read_text(errors="replace") for file in folder.rglob("*.jsonl"))
    for text in texts:
        if '"k":"GroupEvent"' not in text:
            continue  # the launcher's own
        for line in text.splitlines():
            event = json.loads(line) if line.endswith("}") else {}
            if "t" in event and event["k"] not in _NO_PROGRESS and event.get("ended", True):
                yield event["t"]


if __name__ == "__main__":
    main()

"""The metrics of a watched job, scraped by a real Prometheus.

    python -m tests.prometheus

Needs the program ``prometheus``, as in the package of that name of Debian. Starts a job of two ranks and the server
on loopback, asks the server for what it has scraped, and stops both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cli.test_top import JOB
from tests.support.command import environment, free_port

SECONDS = 120.0
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - {{job_name: ddpdoctor, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}
"""
QUERIES = {
    "ddpdoctor_steps_total": 2,
    "ddpdoctor_work_seconds": 2,
    "ddpdoctor_slowest == 1": 1,
    'ddpdoctor_state{state="moves"} == 1': 1,
    "rate(ddpdoctor_steps_total[10s]) > 0": 2,
}
"""What is asked, and how many series are the answer."""


def asked(server: int, query: str) -> list[Any]:
    """The series that the server answers with; none before it is up."""
    with suppress(OSError):
        url = f"http://127.0.0.1:{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return list(json.load(answer)["data"]["result"])
    return []


def main() -> int:
    """Run it."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        print("prometheus is not installed")
        return 2
    port, server = free_port(), free_port()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "train.py").write_text(JOB)
        (folder / "prometheus.yml").write_text(CONFIG.format(port=port))
        watch = [sys.executable, "-m", "ddpdoctor", "watch", "--metrics", f"127.0.0.1:{port}", "--nproc", "2"]
        listens = f"--web.listen-address=127.0.0.1:{server}"
        data = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", listens]
        started = [
            subprocess.Popen(
                [*watch, "train.py"], cwd=folder, env=environment({}), stdout=subprocess.DEVNULL
            ),
            subprocess.Popen([prometheus, *data], cwd=folder, stderr=subprocess.DEVNULL),
        ]
        try:
            end, left = time.monotonic() + SECONDS, dict(QUERIES)
            while left and time.monotonic() < end:
                time.sleep(1)
                left = {query: count for query, count in left.items() if len(asked(server, query)) != count}
            (folder / "over").touch()
            left |= {"exit status 0": 0} if started[0].wait(SECONDS) else {}
        finally:
            for process in started:
                process.terminate()
                process.wait(SECONDS)
    for query in QUERIES:
        print(f"{'MISSING' if query in left else 'ok':<8} {query}")
    return int(bool(left))


if __name__ == "__main__":
    raise SystemExit(main())

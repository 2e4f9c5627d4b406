"""``python -m tests.healthy [--busy] [--times 10] [NAME...]``: is a correct script silent each time?

By default the scripts whose loops must not be cut: a thread that reads ahead, and a script that counts its steps. With
``--busy``, a busy loop runs on each core meanwhile.
"""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.stragglers.__main__ import busy_cores
from tests.support.command import ddpdoctor
from tests.support.forked import starts_ranks_itself

NAMES = ("fills_a_queue_in_a_thread", "counts_its_steps")


def main() -> int:
    """Check them; the exit status is 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.healthy")
    parser.add_argument("names", nargs="*", default=NAMES, help="scripts of tests/healthy")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    loud = 0
    with busy_cores() if options.busy else nullcontext():
        for name in options.names:
            found = [_found(Path(__file__).with_name(f"{name}.py")) for _ in range(options.times)]
            silent = found.count("")
            loud += options.times - silent
            print(f"{name}: silent {silent} of {options.times}", *filter(None, found), sep="\n  ", flush=True)
    return int(loud > 0)


def _found(script: Path) -> str:
    """The headlines of what a check reports above information; empty where that is nothing."""
    by_itself = ("--", sys.executable, str(script), "2")
    launch = by_itself if starts_ranks_itself(script) else ("--nproc", "2", str(script))
    with TemporaryDirectory() as folder:
        words = ("check", "--ignore", "host,group", "--format", "json", "--quiet", *launch)
        done = ddpdoctor(*words, cwd=Path(folder))
    if done.status == 0:
        return ""
    return "; ".join(found["headline"] for found in done.report["findings"]) or done.err[-300:]


if __name__ == "__main__":
    sys.exit(main())

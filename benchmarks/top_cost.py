"""What `ddpdoctor top` takes of a CPU for a large job, whose records are generated and go on.

    python benchmarks/top_cost.py [--ranks 1024] [--seconds 20]

Each rank has a record of 12 training steps, and the file in which it says where it is, which is written anew four
times a second for a sixteenth of the ranks. The screen is drawn as on a terminal of 50 lines.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import threading
import time
from pathlib import Path

from limits import tell
from rich.console import Console

from ddpdoctor.cli.top import pause
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.live.job import LiveRanks
from ddpdoctor.live.screen import screen
from ddpdoctor.recorder.events.process import GroupEvent, Start
from ddpdoctor.recorder.events.schema import SCHEMA, encode
from ddpdoctor.recorder.events.updates import OptimizerStep


def record(folder: Path, rank: int, size: int) -> None:
    """The record of a rank that has begun to train."""
    environ = {"RANK": str(rank), "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": str(size)}
    phases = {"total": 0.1, "waits": 0.02, "forward": 0.03, "backward": 0.04}
    events = [
        Start(
            SCHEMA,
            0.0,
            pid=1000 + rank,
            parent=1,
            script="train.py",
            environ=environ,
            host=f"node{rank // 8}",
        ),
        GroupEvent("init", 0.0, None, rank=rank, size=size, backend="nccl"),
        *(OptimizerStep(0, step, None, step=step, phases=phases) for step in range(12)),
    ]
    (folder / f"{1000 + rank}-1.jsonl").write_text("".join(f"{encode(event, 0.0)}\n" for event in events))


def beat(folder: Path, rank: int, steps: int) -> None:
    """Where a rank says that it is."""
    now, at = time.monotonic(), ["train", "/job/train.py", 88]
    values = {"t": now, "moved": now, "thread": 3, "at": at, "stack": [at] * 8, "steps": steps, "waited": 0.1}
    (folder / f"{1000 + rank}-1.now").write_text(json.dumps(values))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for rank in range(options.ranks):
            record(folder, rank, options.ranks)
            beat(folder, rank, 12)
        stop = threading.Event()

        def go_on() -> None:
            steps = 12
            while not stop.wait(0.25):
                steps += 1
                for rank in range(steps % 16, options.ranks, 16):
                    beat(folder, rank, steps)

        writer = threading.Thread(target=go_on)
        writer.start()
        watch, console = Watch(folder), Console(file=io.StringIO(), width=120, height=50, force_terminal=True)
        ranks, looks, spent = LiveRanks(watch), 0, 0.0
        watch.look()  # reads all that was recorded so far, once
        began = time.monotonic()
        while (passed := time.monotonic() - began) < options.seconds:
            cpu = time.thread_time()
            watch.look()
            console.print(screen(ranks.now(), "train.py", console.height))
            took = time.thread_time() - cpu
            spent, looks = spent + took, looks + 1
            time.sleep(pause(took, 1.0))
        stop.set()
        writer.join()
    return int(tell("top", 100 * spent / passed, of=f"{options.ranks} ranks", spread=f"{looks} looks"))


if __name__ == "__main__":
    raise SystemExit(main())

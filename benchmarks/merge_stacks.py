"""Stacks of many ranks merged into one prefix tree, and written.

    python benchmarks/merge_stacks.py [--ranks 10000]

The stacks are those of a job that stands still: nearly all in the same all-reduce, some in other calls, a few each in
a place of its own, every one of them an object of its own as py-spy's output makes them. Printed: seconds, the lines
of the tree, and the seconds that reading the same stacks from JSON takes, for comparison.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from limits import tell

ROOT = Path(__file__).resolve().parents[1]
DEPTH = 30
"""Frames of a stack below a launcher, a framework and torch."""
PLACES = 20
"""Different calls in which some ranks stand."""
ODD = 50
"""Ranks that stand each in a place of their own."""


def main() -> None:
    """Make the stacks, merge them, print the seconds."""
    sys.path.insert(0, str(ROOT))
    from ddpdoctor.blame.frames import Frame, lines, merge

    ranks = _parse().ranks
    texts = [json.dumps(_stack(rank, ranks)) for rank in range(ranks)]
    begun = time.perf_counter()
    recorded = [json.loads(text) for text in texts]
    read = time.perf_counter() - begun
    stacks = {rank: tuple(Frame(*frame) for frame in stack) for rank, stack in enumerate(recorded)}
    begun = time.perf_counter()
    tree = merge(stacks)
    merged = time.perf_counter() - begun
    written = sum(1 for _ in lines(tree))
    total = time.perf_counter() - begun
    print(f"{ranks} stacks of {DEPTH} frames merged in {merged:.2f} s, with {written} lines {total:.2f} s")
    tell("stacks" if ranks <= 10_000 else "all_stacks", total)
    print(f"reading them from JSON: {read:.2f} s")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=10_000)
    return parser.parse_args()


def _stack(rank: int, ranks: int) -> list[tuple[str, str, int]]:
    common: list[Any] = [
        (f"function_{level}", f"/jobs/module_{level}.py", 10 * level) for level in range(DEPTH - 1)
    ]
    if rank % max(ranks // ODD, 1) == 0:
        return [*common, ("waits", "/jobs/data.py", rank)]
    return [*common, ("all_reduce", "/venv/torch/distributed/distributed_c10d.py", 3245 + rank % PLACES)]


if __name__ == "__main__":
    main()

"""How fast ``ddpdoctor explain`` reads NCCL's log of a large job, beside ``grep -c 'NCCL WARN'`` on the same file.

    python benchmarks/explain_speed.py [--mb 500] [--ranks 1024]

Prints megabytes per second of both, their ratio, and the memory that explain took at most.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from limits import tell

PER_NODE = 8
CHANNELS = 16


def lines(ranks: int, seed: int) -> Iterator[str]:
    """One initialisation as NCCL 2.21 logs it, the ranks' lines in an order as they arrive."""
    order = random.Random(seed)
    per_rank = [list(_of_rank(rank, ranks)) for rank in range(ranks)]
    places = [rank for rank, texts in enumerate(per_rank) for _ in texts]
    order.shuffle(places)
    following = [iter(texts) for texts in per_rank]
    for rank in places:
        node, device = divmod(rank, PER_NODE)
        yield f"node{node:04d}:{4000 + rank}:{9000 + rank} [{device}] NCCL INFO {next(following[rank])}\n"


def _of_rank(rank: int, ranks: int) -> Iterator[str]:
    node, device = divmod(rank, PER_NODE)
    yield "cudaDriverVersion 12040"
    yield f"Bootstrap : Using eth0:10.1.{node // 250}.{node % 250}<0>"
    yield "NCCL_IB_TIMEOUT set by environment to 22."
    yield f"NET/IB : Using [0]mlx5_{device}:1/IB [RO]; OOB eth0:10.1.{node // 250}.{node % 250}<0>"
    yield "Using network IB"
    after = (rank + 1) % ranks
    for channel in range(CHANNELS):
        yield f"Channel {channel:02d}/{CHANNELS} :" + "".join(f" {peer:4d}" for peer in range(PER_NODE))
        via = "P2P/CUMEM" if after // PER_NODE == node else f"NET/IB/{channel % 8}/GDRDMA"
        yield f"Channel {channel:02d}/0 : {rank}[{device}] -> {after}[{after % PER_NODE}] via {via}"
        yield f"Trees [{channel}] {after}/-1/-1->{rank}->{rank - 1}"
    yield "Connected all rings"
    yield "Connected all trees"
    yield "threadThresholds 8/8/64 | 8192/8/64 | 512 | 512"
    yield f"{CHANNELS} coll channels, 16 collnet channels, 0 nvls channels, 32 p2p channels, 2 p2p channels per peer"
    comm = f"0x{0x55D20C3F1A80 + 4096 * rank:x}"
    yield f"ncclCommInitRank comm {comm} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} - Init COMPLETE"


def write(path: Path, megabytes: int, ranks: int) -> float:
    """Fill the file with as many starts of the job as fit; its size in megabytes."""
    start = "".join(lines(ranks, seed=0))
    with path.open("w") as file:
        for _ in range(max(1, round(megabytes * 1e6 / len(start)))):
            file.write(start)
        file.write(
            "node0000:4000:9000 [0] misc/socket.cc:483 NCCL WARN socketProgress: Connection closed by peer\n"
        )
    return path.stat().st_size / 1e6


def timed(command: list[str]) -> float:
    """The seconds that a command takes, its output thrown away."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        size = write(path, options.mb, options.ranks)
        explain = [sys.executable, "-m", "ddpdoctor", "explain"]
        empty = Path(folder) / "empty.log"
        empty.write_text("step 1\n")
        start_up = min(timed([*explain, str(empty)]) for _ in range(3))
        grep = min(timed(["grep", "-c", "NCCL WARN", str(path)]) for _ in range(3))
        whole = min(timed([*explain, str(path)]) for _ in range(3))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{size:.0f} MB of {options.ranks} ranks; at most {memory:.0f} MiB of memory")
    print(f"explain  {size / whole:6.0f} MB/s  ({whole:.2f} s, of which {start_up:.2f} s to start)")
    print(f"grep     {size / grep:6.0f} MB/s  ({grep:.2f} s)")
    print(f"explain takes {whole / grep:.1f} times as long as grep")
    tell("explain", size / whole)


if __name__ == "__main__":
    main()

"""Two ranks forked from one process, so that torch is imported once: ``python forks.py MODE FOLDER``."""

import os
import select
import signal
import sys
import threading
import time

import torch.distributed as dist


def lock(rank: int) -> None:
    """Rank 1 waits for a lock that nobody gives back."""
    if rank == 1:
        threading.Event().wait()


def pause(rank: int) -> None:
    """Rank 1 is blocked until something is written into the pipe in the folder, and then goes on."""
    if rank == 1:
        select.select([os.open(f"{sys.argv[2]}/pipe", os.O_RDWR)], [], [])


def leave(rank: int) -> None:
    """Rank 1 leaves with success while rank 0 waits."""
    if rank == 1:
        os._exit(0)


def late(rank: int) -> None:
    """All that looks like a hang and is none: every rank evaluates, rank 0 works, rank 0 writes a checkpoint."""
    score()
    dist.barrier()
    if rank == 0:
        ends = time.monotonic() + 4
        while time.monotonic() < ends:
            pass
    dist.barrier()
    if rank == 0:
        flush_it()


def score() -> None:
    time.sleep(4)


def flush_it() -> None:
    time.sleep(4)


def turns(rank: int) -> None:
    """Rank 0 works in turns that take no CPU worth the name, and the other waits for it."""
    if rank == 0:
        for _batch in range(40):
            time.sleep(0.25)


def wait_for_a_signal(rank: int) -> None:
    """Each rank ends in order when it is told to."""

    def save(number: int, frame: object) -> None:
        os.write(1, f"rank {rank} saves\n".encode())  # print may be under way
        time.sleep(1)
        os.write(1, f"rank {rank} saved\n".encode())
        os._exit(7)

    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGINT, save)
    print("ready", flush=True)
    while True:
        time.sleep(0.1)


def run(rank: int, mode: str, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    dist.barrier()
    globals()[mode](rank)
    dist.barrier()
    print(f"rank {rank} is done", flush=True)


def main() -> None:
    pids = []
    for rank in range(2):
        pids.append(os.fork())
        if not pids[-1]:
            run(rank, *sys.argv[1:])
            os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.exit(max(statuses))


if __name__ == "__main__":
    main()

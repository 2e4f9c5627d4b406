"""A watchdog's lines, as torch writes them."""


def wait(rank: int, sequence: int = 12, operation: str = "ALLREDUCE", seconds: int = 600) -> str:
    """What a rank's watchdog says of a collective that did not end."""
    work = f"SeqNum={sequence}, OpType={operation}, NumelIn=10, NumelOut=10, Timeout(ms)={seconds}000"
    return (
        f"[rank{rank}]:[E102 03:04:05 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL({work}) ran for {seconds}037 milliseconds before timing out.\n"
    )


def status(rank: int, sequence: int, enqueued: int, completed: int) -> str:
    """What it says of the state of the group."""
    return (
        f"[rank{rank}]:[E102 03:04:06 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure "
        f"detected by watchdog at work sequence id: {sequence} PG status: last enqueued work: {enqueued}, "
        f"last completed work: {completed}\n"
    )


def stopped(*pids: int) -> str:
    """A launcher's lines about the processes that it stopped."""
    return "".join(
        f"W0102 03:04:07 1 api.py:900] Sending process {pid} closing signal SIGTERM\n" for pid in pids
    )


def sizes(count: int) -> str:
    """A line by which a job tells how many ranks it has."""
    return f"node-a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks {count} cudaDev 0 busId 1000 - Init COMPLETE\n"

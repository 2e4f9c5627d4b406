from ddpdoctor.check import Check, Judgement, Passed
from ddpdoctor.failures import Message
from ddpdoctor.host import Host
from ddpdoctor.launch import Launch

FILES_OF_A_RANK = 96
"""What a training process keeps open: 10 with torch and a group of one, 30 more for 4 DataLoader workers (measured
with torch 2.13), the CUDA driver's and the script's own; DataLoader passes every tensor in flight as a file."""
FILES_PER_PEER = {"gloo": 1, "nccl": 8}
"""gloo connects every pair of ranks with one socket; NCCL opens several for each peer, for its channels and proxies."""
NCCL_PEERS = 64
"""NCCL's rings and trees connect a rank with few others, however large the job."""
TIGHT = 2


class OpenFilesLimit(Check):
    """The limit on open files is too low for the ranks.

    What it finds:
        A soft limit (ulimit -n) below what a rank of this job opens: sockets to each peer, the store, shared memory,
        DataLoader workers, log files.

    Why it matters:
        A rank opens sockets to its peers, and DataLoader workers pass each tensor as an open file. Above the limit,
        opening fails with "Too many open files", or the kernel drops the file that was sent ("0 items of ancdata"), and
        the other ranks wait for that rank.

    Example:
        A shell or a service with a low limit:
            ulimit -n 64
            torchrun --nproc-per-node 8 train.py     # OSError: [Errno 24] Too many open files

    Fix:
        Raise the soft limit to the hard limit before the launch, on every node:
            ulimit -n $(ulimit -Hn)                  # in a container: docker run --ulimit nofile=65536:65536
        Or let DataLoader workers use files instead of descriptors:
            torch.multiprocessing.set_sharing_strategy("file_system")
    """

    code = "DD015"
    title = "the limit on open files is high enough"
    breaks_group = True
    messages = (
        Message(
            r"[Tt]oo many open files|received \d+ items of ancdata|\[Errno 24\]",
            headline="{process} ran out of file descriptors",
        ),
    )

    def examine_host(self, host: Host) -> Judgement:
        soft, hard = host.system.rlimit("NOFILE")
        needed = _needed(host.launch)
        if soft < 0:
            return Passed("the number of open files is not limited")
        if soft >= TIGHT * needed:
            return Passed(f"{soft} open files are allowed, a rank needs about {needed}")
        report = self.fail if soft < needed else self.info
        return report(
            f"{soft} open files are allowed, a rank of {host.launch.world_size} needs about {needed}",
            fix=_fix(hard, TIGHT * needed),
        )


def _needed(launch: Launch) -> int:
    peers = launch.world_size - 1
    if "nccl" in launch.backend:
        return FILES_OF_A_RANK + FILES_PER_PEER["nccl"] * min(peers, NCCL_PEERS)
    return FILES_OF_A_RANK + FILES_PER_PEER["gloo"] * peers


def _fix(hard: int, wanted: int) -> str:
    if hard < 0 or hard >= wanted:
        return "ulimit -n $(ulimit -Hn)    # in the shell or job script that starts the launcher"
    return (
        f"the hard limit is {hard}: raise it in /etc/security/limits.conf (nofile), in the service (LimitNOFILE=) "
        "or with docker run --ulimit nofile=65536:65536"
    )

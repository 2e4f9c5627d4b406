import re
import signal
from collections.abc import Iterator
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.host.system import Disk
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, log_fields
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import plural, size

FOLDER = "/dev/shm"
FULL = 1 << 20
"""Measured: on a full /dev/shm a gloo group works, while multiprocessing.Lock() and every DataLoader worker fail."""
COMFORTABLE = 128 << 20
"""Of each rank: 4 workers that prefetch 2 batches of 16 MiB each. With 64 MiB for all, this was a SIGBUS."""
NCCL_NEEDS = 128 << 20
"""NVIDIA advises 1 GiB for a container; below this, NCCL fails where GPUs talk through host memory."""
LEAKED_SHARE = 0.1
_OF_TORCH = re.compile(r"torch_(\d+)_\d+_\d+")
_NO_SPACE = (
    r"(?:shared memory|posix_fallocate|/dev/shm|shm\b).{0,200}No space left on device"
    r"|No space left on device.{0,80}/dev/shm"
    r"|(?:Error while creating shared memory segment|failed to extend /dev/shm/nccl)(?!.*error: )"
)
_WORKERS_BUS_ERROR = (
    r"is killed by signal: Bus error|workers are out of shared memory|insufficient shared memory"
)
_FULL = r"\s100% /dev/shm$"


class SharedMemorySmall(Check):
    """/dev/shm is too small, full, or holds files of processes that have ended.

    What it finds:
        Less free space in /dev/shm than DataLoader workers (and NCCL, where GPUs talk through host memory) need;
        docker gives a container 64 MiB. And files of torch there whose process has ended.

    Why it matters:
        Workers hand batches to their rank through /dev/shm. Where it is full, the worker dies with a bus error
        ("DataLoader worker is killed by signal: Bus error"), and the other ranks wait for that rank.

    Example:
        A container with docker's default:
            docker run train-image torchrun --nproc-per-node 4 train.py   # num_workers=4, /dev/shm of 64 MiB

    Fix:
        Give the container more, or share the host's:
            docker run --shm-size=8g ...             # or --ipc=host
        In Kubernetes, mount an emptyDir with medium: Memory at /dev/shm.
    """

    code = "DD016"
    title = "/dev/shm is large enough"
    raises = (_WORKERS_BUS_ERROR, _NO_SPACE)
    log_words = ("shared memory", "posix_fallocate", "/dev/shm", "nccl-", "Bus error", "out of shared")

    def examine_host(self, host: Host) -> Judgement:
        shm = host.shm
        if shm is None:
            return Skipped("this system has no /dev/shm")
        leaked = list(_leaked(host))
        if shm.free < COMFORTABLE * host.launch.nproc:
            nccl = "nccl" in host.launch.backend and host.launch.nproc > 1 and shm.free < NCCL_NEEDS
            report = self.fail if shm.free < FULL else self.warn if nccl else self.info
            return report(
                f"/dev/shm has {size(shm.free)} of {size(shm.total)} free for {plural(host.launch.nproc, 'rank')}",
                why="DataLoader workers pass batches through /dev/shm, and NCCL uses it where GPUs talk through host "
                "memory. Where it runs full, a worker dies with a bus error, or NCCL does not start.",
                fix="docker run --shm-size=8g ... (or --ipc=host); without a container: mount -o "
                "remount,size=8G /dev/shm; or num_workers=0" + (f"; and {_remove(leaked)}" if leaked else ""),
                evidence=_evidence(leaked),
            )
        held = sum(count for _, count in leaked)
        if held > LEAKED_SHARE * shm.total:
            return self._leak(leaked, shm)
        return Passed(f"/dev/shm has {size(shm.free)} of {size(shm.total)} free")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_NO_SPACE, _WORKERS_BUS_ERROR, _FULL)
        if reason:
            return self._told(log_fields(reason), Confidence.CERTAIN)
        full = next((raised for raised in log.fatal if _of_multiprocessing(raised)), None)
        if full:
            return self._told(log_fields(full), Confidence.CERTAIN)
        ended = next((end for end in log.ended if end.code == -signal.SIGBUS), None)
        if ended is None:
            return NOT_IN_OUTPUT
        ranks = () if ended.rank is None else (ended.rank,)
        return self._told(log_fields(ended.line, ranks=ranks), Confidence.LIKELY)

    def _told(self, details: dict[str, Any], confidence: Confidence) -> Finding:
        return self.fail(
            "shared memory (/dev/shm) was full"
            if confidence is Confidence.CERTAIN
            else "a process was killed by SIGBUS, which is mostly shared memory (/dev/shm) that is full",
            why="NCCL and DataLoader workers pass data through files in /dev/shm. A container has 64 MB of "
            "it unless told otherwise, and files of killed jobs stay. Writing past its end is SIGBUS, which "
            "leaves no traceback.",
            fix="df -h /dev/shm; ls /dev/shm     # remove what no process has open: fuser -v /dev/shm/*\n"
            "docker run --shm-size=8g ...     # Kubernetes: an emptyDir with medium: Memory at /dev/shm",
            confidence=confidence,
            **details,
        )

    def _leak(self, leaked: list[tuple[str, int]], shm: Disk) -> Finding:
        held = sum(count for _, count in leaked)
        return self.info(
            f"{size(held)} of {size(shm.total)} in /dev/shm are held by torch files of processes that are gone",
            why="Processes that were killed could not remove what they shared. It stays in memory until it "
            "is removed or the machine restarts.",
            fix=f"{_remove(leaked)}, unless a container that shares this /dev/shm is using them",
            evidence=_evidence(leaked),
            confidence=Confidence.LIKELY,
        )


def _leaked(host: Host) -> Iterator[tuple[str, int]]:
    """The files of torch whose creator, which their name tells, is gone, with their sizes."""
    alive = {process.pid for process in host.processes}
    for name in host.system.list_dir(FOLDER):
        match = _OF_TORCH.fullmatch(name)
        if match and int(match[1]) not in alive:
            yield name, host.system.file_size(f"{FOLDER}/{name}")


def _evidence(leaked: list[tuple[str, int]]) -> tuple[Evidence, ...]:
    held = sum(count for _, count in leaked)
    return (
        (Evidence(f"{plural(len(leaked), 'file')} of processes that are gone: {size(held)}"),)
        if leaked
        else ()
    )


def _remove(leaked: list[tuple[str, int]]) -> str:
    pids = sorted({name.split("_")[1] for name, _ in leaked})
    shown = " ".join(f"{FOLDER}/torch_{pid}_*" for pid in pids[:4])
    return f"rm {shown}" + (" ..." if len(pids) > 4 else "")


def _of_multiprocessing(raised: Raised) -> bool:
    """Whether Python's multiprocessing, which keeps its semaphores in /dev/shm, found no space there."""
    at = raised.frames[-1].file if raised.frames else ""
    return "No space left" in raised.message and "/multiprocessing/" in at

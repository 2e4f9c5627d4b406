import re
import signal
from collections.abc import Iterable

from ddpdoctor.check import Check, Confidence, Evidence, Judgement, Passed, Skipped
from ddpdoctor.host import Host
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, log_fields
from ddpdoctor.text import plural, size

FOLDER = "/dev/shm"
FULL = 1 << 20
"""Measured: on a full /dev/shm a gloo group works, while multiprocessing.Lock() and every DataLoader worker fail."""
COMFORTABLE = 128 << 20
"""For each rank: 4 workers that prefetch 2 batches of 16 MiB. With 64 MiB for all ranks, this ends in SIGBUS."""
NCCL_NEEDS = 128 << 20
"""NVIDIA recommends 1 GiB for a container; below this, NCCL fails where GPUs communicate through host memory."""
LEAKED_SHARE = 0.1
_OF_TORCH = re.compile(r"torch_(\d+)_\d+_\d+")
_NO_SPACE = (
    r"(?:shared memory|posix_fallocate|/dev/shm|shm\b).{0,200}No space left on device"
    r"|No space left on device.{0,80}/dev/shm|unable to write to file </torch_"
    r"|(?:Error while creating shared memory segment|failed to extend /dev/shm/nccl)(?!.*error: )"
)
_WORKERS_BUS_ERROR = (
    r"is killed by signal: Bus error|workers are out of shared memory|insufficient shared memory"
)
_FULL = r"\s100% /dev/shm$"


class SharedMemorySmall(Check):
    """/dev/shm is too small, full, or holds files of processes that have ended.

    What it finds:
        Less free space in /dev/shm than DataLoader workers need, or NCCL where GPUs communicate through host memory;
        docker gives a container 64 MiB. Also files of torch there whose process has ended.

    Why it matters:
        DataLoader workers and NCCL pass data through files in /dev/shm. When it is full, the worker dies with a bus
        error ("DataLoader worker is killed by signal: Bus error") and no traceback, or NCCL does not start, and the
        other ranks wait for that rank.

    Example:
        A container with docker's default:
            docker run train-image torchrun --nproc-per-node 4 train.py   # num_workers=4, /dev/shm of 64 MiB

    Fix:
        Give the container more, or share the host's:
            docker run --shm-size=8g ...             # or --ipc=host
        In Kubernetes, mount an emptyDir with medium: Memory at /dev/shm. Files of killed jobs stay; remove those that
        no process has open:
            df -h /dev/shm; ls /dev/shm; fuser -v /dev/shm/*
    """

    code = "DD016"
    title = "/dev/shm is large enough"
    raises = (_WORKERS_BUS_ERROR, _NO_SPACE)
    log_words = ("/dev/shm",)

    def examine_host(self, host: Host) -> Judgement:
        shm = host.shm
        if shm is None:
            return Skipped("this system has no /dev/shm")
        leaked, nproc = _leaked(host), host.launch.nproc
        held = sum(leaked.values())
        evidence = (Evidence(f"{plural(len(leaked), 'file')} of processes that are gone: {size(held)}"),)
        free = f"/dev/shm has {size(shm.free)} of {size(shm.total)} free"
        if shm.free < COMFORTABLE * nproc:
            nccl = "nccl" in host.launch.backend and nproc > 1 and shm.free < NCCL_NEEDS
            report = self.fail if shm.free < FULL else self.warn if nccl else self.info
            return report(
                f"{free} for {plural(nproc, 'rank')}",
                fix="docker run --shm-size=8g ... (or --ipc=host); without a container: mount -o "
                "remount,size=8G /dev/shm; or num_workers=0" + (f"; and {_remove(leaked)}" if leaked else ""),
                evidence=evidence if leaked else (),
            )
        if held > LEAKED_SHARE * shm.total:
            return self.info(
                f"{size(held)} of {size(shm.total)} in /dev/shm are held by torch files of processes that are gone",
                fix=f"{_remove(leaked)}, unless a container that shares this /dev/shm uses them",
                evidence=evidence,
                confidence=Confidence.LIKELY,
            )
        return Passed(free)

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_NO_SPACE, _WORKERS_BUS_ERROR, _FULL)
        cause = reason or next((raised for raised in log.fatal if _is_of_multiprocessing(raised)), None)
        if cause:
            return self.fail("shared memory (/dev/shm) was full", **log_fields(cause))
        end = next((end for end in log.ended if end.code == -signal.SIGBUS), None)
        if end is None:
            return NOT_IN_OUTPUT
        headline = f"{end.who} was killed by SIGBUS, most likely because shared memory (/dev/shm) was full"
        return self.fail(headline, confidence=Confidence.LIKELY, **log_fields(end))


def _leaked(host: Host) -> dict[str, int]:
    """The sizes of torch's files whose creator, which is in their name, has ended."""
    alive = {process.pid for process in host.processes}
    matches = filter(None, map(_OF_TORCH.fullmatch, host.system.list_dir(FOLDER)))
    return {it[0]: host.system.file_size(f"{FOLDER}/{it[0]}") for it in matches if int(it[1]) not in alive}


def _remove(leaked: Iterable[str]) -> str:
    pids = sorted({name.split("_")[1] for name in leaked})
    shown = " ".join(f"{FOLDER}/torch_{pid}_*" for pid in pids[:4])
    return f"rm {shown}" + (" ..." if len(pids) > 4 else "")


def _is_of_multiprocessing(raised: Raised) -> bool:
    """Whether Python's multiprocessing, which keeps its semaphores in /dev/shm, found no space there, for no file."""
    file = raised.frames[-1].file if raised.frames else ""
    return raised.message.endswith("No space left on device") and "/multiprocessing/" in file

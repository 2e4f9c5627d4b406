from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Judgement

_FAILED = (
    r"Error while (?:creating|attaching to) shared memory segment|failed to (?:extend|open|create) /dev/shm/nccl"
    r"|shm_open failed|Call to (?:shm_open|posix_fallocate|ftruncate|mmap) failed"
)


class NcclSharedMemory(Check):
    """NCCL cannot make or extend its shared memory segment.

    What it finds:
        A rank whose segment in /dev/shm could not be created, extended or attached, for another reason than space
        (which is DD016): permissions, a missing /dev/shm, or ranks in containers that do not share it.

    Why it matters:
        Ranks of one host that have no peer access between their GPUs pass their data through these segments.

    Example:
        Two containers on one host with a hostname in common, each with a /dev/shm of its own.

    Fix:
        Give ranks of one host the same /dev/shm (--ipc=host), or other hostnames; NCCL_SHM_DISABLE=1 goes over
        sockets instead.
    """

    code = "DD707"
    title = "NCCL can create its shared memory segments"
    raises = (_FAILED,)
    explained_by = ("DD016",)
    log_words = ("shared memory segment", "/dev/shm/nccl", "shm_open")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_FAILED)
        return self.fail(
            "NCCL could not make or attach a shared memory segment",
            why="Ranks of one host pass data through files in /dev/shm. One could not be made, or is not "
            "seen from the other rank's container.",
            fix="ls -ld /dev/shm; df -h /dev/shm     # in the container of each rank\n"
            "docker run --ipc=host ... ; NCCL_SHM_DISABLE=1 to see whether the job runs without",
            **log_fields(reason),
        )

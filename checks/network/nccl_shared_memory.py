from ddpdoctor.check import Check
from ddpdoctor.failures import Message

_FAILED = (
    r"Error while (?:creating|attaching to) shared memory segment|failed to (?:extend|open|create) /dev/shm/nccl"
    r"|shm_open failed|Call to (?:shm_open|posix_fallocate|ftruncate|mmap) failed"
)


class NcclSharedMemory(Check):
    """NCCL cannot create or extend its shared memory segment.

    What it finds:
        A rank whose segment in /dev/shm could not be created, extended or attached, for another reason than space
        (DD016): permissions, a missing /dev/shm, or ranks in containers that do not share it.

    Why it matters:
        Ranks of one host whose GPUs have no peer access pass data through files in /dev/shm. One could not be created,
        or is not visible in the other rank's container.

    Example:
        Two containers on one host have the same hostname, and each has its own /dev/shm.

    Fix:
        Give the ranks of one host the same /dev/shm (docker run --ipc=host), or different hostnames. Look into the
        container of each rank:
            ls -ld /dev/shm; df -h /dev/shm
        NCCL_SHM_DISABLE=1 uses sockets instead.
    """

    code = "DD707"
    title = "NCCL can create its shared memory segments"
    messages = (Message(_FAILED, headline="NCCL could not create or attach a shared memory segment"),)
    explained_by = ("DD016",)

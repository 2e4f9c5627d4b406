from tests.support.logs import lets_survive, names, raised, summary

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "DataLoader worker (pid 412) is killed by signal: Bus error. It is possible that dataloader's "
            "workers are out of shared memory. Please try to raise your shared memory limit.",
        ),
        "shared memory (/dev/shm) was full",
    ),
    (
        NCCL + "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
        "shared memory (/dev/shm) was full",
    ),
    (
        NCCL + "NCCL WARN failed to extend /dev/shm/nccl-xHLn4z to 9 bytes, error: No space left on device\n",
        "shared memory (/dev/shm) was full",
    ),
    (summary(1, -7), "rank 1 was killed by SIGBUS, most likely because shared memory (/dev/shm) was full"),
    (
        "[2026-01-02] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -7\n",
        "a process was killed by SIGBUS, most likely because shared memory (/dev/shm) was full",
    ),
    ("tmpfs            64M   64M     0 100% /dev/shm\n", "shared memory (/dev/shm) was full"),
]

test_it_is_named = names("DD016", NAMED)

test_what_training_survived_is_not = lets_survive("DD016", NAMED[:2])

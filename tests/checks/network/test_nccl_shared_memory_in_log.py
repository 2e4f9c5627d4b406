from tests.support.logs import lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "misc/shmutils.cc:72 NCCL WARN Error: failed to open /dev/shm/nccl-xHLn4z, error: Permission denied\n",
        "NCCL could not create or attach a shared memory segment",
    ),
    (
        NCCL
        + "misc/shmutils.cc:87 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-2D\n",
        "NCCL could not create or attach a shared memory segment",
    ),
]

test_it_is_named = names("DD707", NAMED)

test_what_training_survived_is_not = lets_survive("DD707", NAMED[:2])

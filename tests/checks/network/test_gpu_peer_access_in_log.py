from tests.support.logs import leaves_alone, lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL + "allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping resources exhausted'\n",
        "a GPU had no peer mapping left for one more GPU",
    ),
    (
        NCCL
        + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        + NCCL
        + "NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n(it hangs here)\n",
        "the GPUs were connected by peer access, and the first collective did not end",
    ),
]

test_it_is_named = names("DD706", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD706",
    [
        NCCL
        + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        + NCCL
        + "NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD706", NAMED[:2])

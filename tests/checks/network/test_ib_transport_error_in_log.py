from tests.support.logs import TRAINING, leaves_alone, lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        20 * TRAINING
        + "NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129\n",
        "an InfiniBand transfer ended with status 12, retries used up: the other side did not answer",
    ),
    (
        NCCL + "transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n",
        "an InfiniBand port reported 'port error'",
    ),
    (
        "NET/IB : Got completion from peer 10.0.0.2<51844> with error 5, opcode 0, len 0, vendor err 249\n",
        "an InfiniBand transfer ended with status 5, a flush after another error",
    ),
]

test_it_is_named = names("DD705", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD705",
    [
        NCCL + "transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table change\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD705", NAMED[1:3])

from tests.support.logs import TRAINING, leaves_alone, lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        "NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129\n",
        "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
    ),
    (
        NCCL + "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<51844> with status=12 opcode=129\n",
        "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
    ),
    (
        NCCL + "misc/ibvwrap.cc:302 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n",
        "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
    ),
]

test_it_is_named = names("DD703", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD703",
    [
        20 * TRAINING
        + "NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD703", NAMED[:2])

from tests.support.logs import leaves_alone, lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n",
        "InfiniBand could not register memory: the limit on locked memory is too low",
    ),
    (
        NCCL
        + "misc/ibvwrap.cc:160 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12\n",
        "InfiniBand could not register memory: the limit on locked memory is too low",
    ),
]

test_it_is_named = names("DD704", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD704",
    [
        NCCL + "misc/ibvwrap.cc:160 NCCL WARN Call to ibv_create_qp failed\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD704", NAMED[:2])

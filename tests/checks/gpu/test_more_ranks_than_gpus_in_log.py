from tests.support.logs import lets_survive, names

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL + "init.cc:738 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n",
        "ranks 0-1 used the same GPU, 1000",
    ),
]

test_it_is_named = names("DD801", NAMED)

test_what_training_survived_is_not = lets_survive("DD801", NAMED[:1])

from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        "node-a:7:8 [0] bootstrap.cc:211 NCCL WARN Bootstrap Root : mismatch in rank count from procs 4 : 2\n"
        + raised(
            0, "torch.distributed.DistBackendError", "NCCL error in: x.cpp:94, internal error\nLast error:\n"
        ),
        "ranks gave different world sizes: 4 and 2",
    ),
    (
        raised(
            0,
            "torch.distributed.DistBackendError",
            "NCCL error in: x.cpp:94, internal error\nLast error:\n"
            "Bootstrap Root : rank 1 of 4 ranks has already checked in",
        ),
        "two processes took rank 1",
    ),
    (
        raised(0, "RuntimeError", "[enforce fail at gloo/context.cc:26] rank < size. 2 vs 2"),
        "a process took rank 2 of 2 ranks",
    ),
]

test_it_is_named = names("DD005", NAMED)

test_what_training_survived_is_not = lets_survive("DD005", NAMED)

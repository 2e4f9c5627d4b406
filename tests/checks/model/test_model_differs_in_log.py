from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has inconsistent 6 "
            "params.",
        ),
        "DistributedDataParallel refused a model that is not the same on every rank",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "[1]: params[0] in this process with sizes [20, 10] appears not to match sizes of the same param "
            "in process 0.",
        ),
        "DistributedDataParallel refused a model that is not the same on every rank",
    ),
]

test_it_is_named = names("DD214", NAMED)

test_what_training_survived_is_not = lets_survive("DD214", NAMED[:2])

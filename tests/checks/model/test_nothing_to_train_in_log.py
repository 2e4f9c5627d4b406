from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.",
        ),
        "a module without a parameter to train was wrapped in DistributedDataParallel",
    ),
]

test_it_is_named = names("DD223", NAMED)

test_what_training_survived_is_not = lets_survive("DD223", NAMED[:1])

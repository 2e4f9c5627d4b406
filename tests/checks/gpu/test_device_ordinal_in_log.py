from tests.support.logs import lets_survive, names, raised

NAMED = [
    (raised(3, "RuntimeError", "No CUDA GPUs are available"), "no GPU is visible to rank 3"),
    (
        raised(
            5,
            "RuntimeError",
            "CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported",
        ),
        "rank 5 used a GPU number that the process does not have",
    ),
]

test_it_is_named = names("DD802", NAMED)

test_what_training_survived_is_not = lets_survive("DD802", NAMED[:1])

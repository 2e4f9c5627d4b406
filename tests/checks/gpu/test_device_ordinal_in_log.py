from tests.support.logs import lets_survive, names, raised

NAMED = [
    (raised(3, "RuntimeError", "No CUDA GPUs are available"), "a rank sees no GPU"),
    (
        raised(
            5,
            "RuntimeError",
            "CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported",
        ),
        "a rank asked for a GPU whose number its process does not have",
    ),
]

test_it_is_named = names("DD802", NAMED)

test_what_training_survived_is_not = lets_survive("DD802", NAMED[:1])

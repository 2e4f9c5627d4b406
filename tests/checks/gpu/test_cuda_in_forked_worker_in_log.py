from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
            "the 'spawn' start method",
        ),
        "a forked process of rank 0 used CUDA after its parent had",
    ),
]

test_it_is_named = names("DD807", NAMED)

test_what_training_survived_is_not = lets_survive("DD807", NAMED[:1])

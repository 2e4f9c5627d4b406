from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.",
        ),
        "a checkpoint was saved from CUDA device 3, which is not here",
    ),
]

test_it_is_named = names("DD406", NAMED)

test_what_training_survived_is_not = lets_survive("DD406", NAMED[:1])

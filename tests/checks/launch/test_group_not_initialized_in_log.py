from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "ValueError",
            "Default process group has not been initialized, please make sure to call init_process_group.",
        ),
        "the process group was used before it was initialized",
    ),
]

test_it_is_named = names("DD021", NAMED)

test_what_training_survived_is_not = lets_survive("DD021", NAMED[:1])

from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(0, "OSError", "[Errno 24] Too many open files: '/data/x'"),
        "rank 0 ran out of file descriptors",
    ),
    (raised(0, "RuntimeError", "received 0 items of ancdata"), "rank 0 ran out of file descriptors"),
]

test_it_is_named = names("DD015", NAMED)

test_what_training_survived_is_not = lets_survive("DD015", NAMED[:2])

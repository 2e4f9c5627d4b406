from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "Expected to mark a variable ready only once.\nParameter at index 604 has been marked as ready twice.",
        ),
        "the gradient of parameter 604 arrived twice in one backward",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "Expected to mark a variable ready only once.\nParameter at index 6 with name block.weight has "
            "been marked as ready twice.",
        ),
        "the gradient of block.weight arrived twice in one backward",
    ),
]

test_it_is_named = names("DD213", NAMED)

test_what_training_survived_is_not = lets_survive("DD213", NAMED[:2])

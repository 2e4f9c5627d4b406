from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "Your training graph has changed in this iteration, e.g., one parameter is unused in first "
            "iteration, but then got used in the second iteration. this is not compatible with static_graph "
            "set to True.",
        ),
        "the graph of a model wrapped with static_graph=True changed",
    ),
]

test_it_is_named = names("DD222", NAMED)

test_what_training_survived_is_not = lets_survive("DD222", NAMED[:1])

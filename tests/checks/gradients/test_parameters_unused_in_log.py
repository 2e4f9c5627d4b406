from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "Expected to have finished reduction in the prior iteration before starting a new one. This error "
            "indicates that your module has parameters that were not used.\nParameter indices which did not "
            "receive grad for rank 1: 160 161\n In addition, you can set",
        ),
        "rank 1 did not produce gradients for parameters 160 161",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "Expected to have finished reduction in the prior iteration before starting a new one.\nParameters "
            "which did not receive grad for rank 1: head.weight, head.bias\nParameter indices which did not "
            "receive grad for rank 1: 2 3",
        ),
        "rank 1 did not produce gradients for parameters head.weight, head.bias",
    ),
]

test_it_is_named = names("DD204", NAMED)

test_what_training_survived_is_not = lets_survive("DD204", NAMED[:2])

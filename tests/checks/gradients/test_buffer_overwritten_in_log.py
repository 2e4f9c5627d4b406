from tests.support.logs import leaves_alone, lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[torch.cuda.FloatTensor [128]] is at version 7; expected version 6 instead.",
        ),
        "a backward found a tensor of the size of a buffer changed in place",
    ),
]

test_it_is_named = names("DD215", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD215",
    [
        raised(
            0,
            "RuntimeError",
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[torch.FloatTensor [64, 10]] is at version 7",
        ),
    ],
)

test_what_training_survived_is_not = lets_survive("DD215", NAMED[:1])

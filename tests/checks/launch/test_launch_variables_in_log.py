from tests.support.logs import leaves_alone, lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "ValueError",
            "Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR "
            "expected, but not set",
        ),
        "MASTER_ADDR was not set in the environment of the script",
    ),
    (raised(0, "KeyError", "'LOCAL_RANK'"), "LOCAL_RANK was not set in the environment of the script"),
]

test_it_is_named = names("DD001", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD001",
    [
        raised(0, "KeyError", "'label'"),
    ],
)

test_what_training_survived_is_not = lets_survive("DD001", NAMED[:2])

from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(0, "ValueError", "SyncBatchNorm expected input tensor to be on GPU"),
        "SyncBatchNorm was given input that it does not work on",
    ),
]

test_it_is_named = names("DD221", NAMED)

test_what_training_survived_is_not = lets_survive("DD221", NAMED[:1])

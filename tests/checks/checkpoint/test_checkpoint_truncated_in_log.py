from tests.support.logs import lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "safetensors_rust.SafetensorError",
            "Error while deserializing header: MetadataIncompleteBuffer",
        ),
        "a checkpoint is not complete, so it cannot be read",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "PytorchStreamReader failed reading zip archive: failed finding central directory",
        ),
        "a checkpoint is not complete, so it cannot be read",
    ),
    (raised(0, "EOFError", "Ran out of input"), "a checkpoint is not complete, so it cannot be read"),
]

test_it_is_named = names("DD404", NAMED)

test_what_training_survived_is_not = lets_survive("DD404", NAMED[:2])

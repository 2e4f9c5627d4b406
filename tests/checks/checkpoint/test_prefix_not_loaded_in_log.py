from tests.support.logs import leaves_alone, lets_survive, names, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". '
            '\n\tUnexpected key(s) in state_dict: "module.a.weight".',
        ),
        "the names of a checkpoint begin with 'module.', and those of the model do not",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "Error(s) in loading state_dict for DistributedDataParallel:\n\tMissing key(s) in state_dict: "
            '"module.a.weight". \n\tUnexpected key(s) in state_dict: "a.weight".',
        ),
        "the names of a checkpoint do not begin with 'module.', and those of the model do",
    ),
]

test_it_is_named = names("DD403", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD403",
    [
        raised(
            0,
            "RuntimeError",
            'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". ',
        ),
        raised(
            0,
            "RuntimeError",
            "Error(s) in loading state_dict for DistributedDataParallel:\n\tsize mismatch for "
            "module.a.weight: copying a param with shape torch.Size([9]) from checkpoint.",
        ),
        raised(
            0,
            "RuntimeError",
            "Error(s) in loading state_dict for DistributedDataParallel:\n\tMissing key(s) in state_dict: "
            '"module.b.weight". \n\tUnexpected key(s) in state_dict: "module.a.weight".',
        ),
    ],
)

test_what_training_survived_is_not = lets_survive("DD403", NAMED[:2])

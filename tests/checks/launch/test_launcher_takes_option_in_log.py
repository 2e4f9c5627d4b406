from tests.support.logs import leaves_alone, lets_survive, names

NAMED = [
    (
        "torchrun: error: ambiguous option: --log could match --log-dir, --log_dir, --log-line-prefix-template\n",
        "torchrun refused '--log'",
    ),
    ("torchrun: error: unrecognized arguments: --nproc 2\n", "torchrun refused '--nproc'"),
    (
        "torchrun: error: the following arguments are required: training_script, training_script_args\n",
        "torchrun found no script to start",
    ),
    (
        "torchrun: error: argument --nproc-per-node/--nproc_per_node: expected one argument\n",
        "torchrun refused '--nproc-per-node/--nproc_per_node'",
    ),
]

test_it_is_named = names("DD008", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD008",
    [
        "train.py: error: ambiguous option: --l could match --lr, --log\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD008", NAMED[:2])

from tests.support.logs import leaves_alone, lets_survive, names

NAMED = [
    (
        "train.py: error: unrecognized arguments: --local-rank=0\n",
        "the script did not know the option --local-rank that the launcher gave it",
    ),
    (
        "train.py: error: unrecognized arguments: --foo 1 --local_rank=3\n",
        "the script did not know the option --local_rank that the launcher gave it",
    ),
    (
        "Usage: train.py [OPTIONS]\nError: No such option: --local-rank\n",
        "the script did not know the option --local-rank that the launcher gave it",
    ),
    (
        "usage: train.py [-h] --local_rank LOCAL_RANK\n"
        "train.py: error: the following arguments are required: --data, --local_rank\n",
        "the script requires the option --local_rank, which the launcher did not give it",
    ),
    (
        "Usage: train.py [OPTIONS]\nError: Missing option '--local-rank'.\n",
        "the script requires the option --local-rank, which the launcher did not give it",
    ),
]

test_it_is_named = names("DD007", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD007",
    [
        "train.py: error: unrecognized arguments: --lr 3\n",
        "train.py: error: the following arguments are required: --data\n",
    ],
)

test_what_training_survived_is_not = lets_survive("DD007", NAMED[:2])

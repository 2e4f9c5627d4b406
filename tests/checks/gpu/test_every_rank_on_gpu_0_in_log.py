from tests.support.logs import leaves_alone, names

NAMED = [
    (
        "|    0   N/A  N/A     100      C   python     5103MiB |\n|    0   N/A  N/A     101      C   python    "
        " 741MiB |\n|    0   N/A  N/A     102      C   python     741MiB |\n|    1   N/A  N/A     101      C   "
        "python     5103MiB |\n|    2   N/A  N/A     102      C   python     5103MiB |\n",
        "2 processes that work on other GPUs hold memory on GPU 0 too",
    ),
]

test_it_is_named = names("DD803", NAMED)

test_what_is_another_matter_is_not = leaves_alone(
    "DD803",
    [
        "|    0   N/A  N/A     100      C   python     5103MiB |\n|    1   N/A  N/A     101      C   python    "
        " 5103MiB |\n",
    ],
)

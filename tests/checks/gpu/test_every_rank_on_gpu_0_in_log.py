from tests.support.logs import explained, leaves_alone, names, raised, summary

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


def test_a_process_of_another_job_is_none_of_this_job():
    message = (
        "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total capacity of 79 GiB of which 1 GiB is "
    )
    message += "free. Process 81234 has 59 GiB memory in use. Process 100 has 18 GiB memory in use."
    text = raised(0, "torch.OutOfMemoryError", message) + summary(0, 1, pid=100)
    assert [finding.code for finding in explained(text)] == ["DD806"]

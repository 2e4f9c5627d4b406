import pytest

from ddpdoctor.model import Role, Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, summary
from tests.support.waits import sizes, status, wait


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            sizes(2) + wait(0, 1) + wait(1, 1) + status(0, 1, 547, -1) + status(1, 1, 547, -1),
            "ranks 0-1 waited in ALLREDUCE number 1 for 600 s, and the output does not show why",
        ),
        (wait(3), "rank 3 waited in ALLREDUCE number 12 for 600 s, and the output does not show why"),
        (
            "[rank7]:[E] [PG ID 0 Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without progress\n"
            + summary(7, -6),
            "rank 7 waited in a call of NCCL for 480 s, and the output does not show why",
        ),
        (
            wait(0, 96120) + wait(0, 96117) + wait(7, 64088),
            "ranks 0, 7 waited in ALLREDUCE for 600 s, and the output does not show why",
        ),
        (
            "[E ProcessGroupNCCL.cpp:523] Watchdog caught collective operation timeout:\nWorkNCCL(OpType=ALLREDUCE)\n",
            "ranks waited in a collective, and the output does not show why",
        ),
        (summary(1, 1), "rank 1 ended with exit status 1, and the output does not show why"),
        (
            "starting\n(no further output)\n",
            "the job stopped making progress, and the output does not show why",
        ),
    ],
)
def test_no_cause_is_guessed(text, headline):
    finding = only_finding("DD312", Source.LOG, log(text))
    assert (finding.headline, finding.sighting.role) == (headline, Role.UNKNOWN)
    assert [one.code for one in explained(text)] == ["DD312"]


def test_what_to_collect_is_something_to_copy():
    finding = only_finding("DD312", Source.LOG, log(wait(0)))
    assert "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 NCCL_DEBUG=INFO" in finding.fix
    assert "ddpdoctor explain logs" in finding.fix


def test_the_first_collective_suggests_the_path():
    assert "NCCL_P2P_DISABLE=1" in only_finding("DD312", Source.LOG, log(wait(0, 1) + wait(1, 1))).why
    assert "NCCL_P2P_DISABLE=1" not in only_finding("DD312", Source.LOG, log(wait(0) + wait(1))).why


def test_a_job_that_goes_on():
    skipped("DD312", Source.LOG, log(8 * TRAINING))

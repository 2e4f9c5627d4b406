import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import explained, log, raised
from tests.support.waits import wait

BAR = " 41%|####1     | 88120/214900 [30:02<43:13, 48.9MB/s]"
STORE = "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0], but store->get('0') got error: x"


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            f"{BAR}\n{wait(6, seconds=1800)}{wait(3, seconds=1800)}",
            "one rank's work was 41 % done after 30 minutes, and the others' wait for it timed out",
        ),
        (
            "Tokenizing:  93%|#| 512/551 [29:58<02:17, 2.61 examples/s]" + raised(2, "RuntimeError", STORE),
            "one rank's work was 92 % done after 30 minutes, and the others' wait for it timed out",
        ),
        (
            f"  1%|  | 1/100 [00:01<1:00, 1 MB/s]\r{BAR}\r\n{wait(1, seconds=1800)}",
            "one rank's work was 41 % done after 30 minutes, and the others' wait for it timed out",
        ),
    ],
)
def test_a_bar_as_old_as_the_wait(text, headline):
    assert only_finding("DD306", Source.LOG, log(text)).headline == headline
    assert [one.code for one in explained(text)] == ["DD306"]


@pytest.mark.parametrize(
    "bar",
    [
        "100%|####| 214900/214900 [30:02<00:00, 48.9MB/s]",
        " 41%|##  | 88120/214900 [02:02<43:13, 48.9MB/s]",
    ],
)
def test_work_that_is_done_or_young_is_not_blamed(bar):
    skipped("DD306", Source.LOG, log(f"{bar}\n{wait(1, seconds=1800)}"))


TRAINING = "Epoch 0:   6%|6   | 320/5001 [30:02<7:25:12,  1.37it/s, loss=2.6, v_num=95]"


def test_a_bar_of_training_steps_is_no_work_of_one_rank():
    skipped("DD306", Source.LOG, log(f"{TRAINING}\n{wait(1, seconds=1800)}"))


def test_a_bar_of_a_rank_that_waited_itself():
    skipped("DD306", Source.LOG, log(f"[rank1]: {BAR}\n{wait(1, seconds=1800)}"))


def test_long_work_that_nobody_waited_for():
    skipped("DD306", Source.LOG, log(f"{BAR}\n"))

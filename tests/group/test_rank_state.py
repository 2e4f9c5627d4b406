import signal
import subprocess
import sys

import pytest

from ddpdoctor.files import GrowingFile
from ddpdoctor.group.rank_state import RankState


@pytest.mark.parametrize(
    ("late", "exit_code", "died"),
    [
        (False, None, True),
        (True, -signal.SIGKILL, True),  # its peers told of a closed connection before it was gone
        (True, -signal.SIGTERM, False),  # the engine ended it, since another had broken
        (True, None, False),
    ],
)
def test_a_death_that_is_seen_late_is_the_engines_where_it_ended_the_rank(late, exit_code, died, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    rank = RankState(0, pid=ended.pid, events=GrowingFile(tmp_path / "rank0.jsonl"), limit=1.0)
    rank.notice_death(late=late)
    assert bool(rank.record(exit_code).died) is died

"""Folders that ranks name by the time, from what a run left behind."""

import time

import pytest

from ddpdoctor.recorder.events.files import FileEvent, LogWriter
from ddpdoctor.trace.clock_names import named_by_clocks
from ddpdoctor.trace.record import Record
from tests.support.recordings import recording, replace, where

NOW = int(time.mktime((2026, 11, 23, 10, 5, 52, 0, 0, -1)))


@pytest.mark.parametrize(
    ("names", "by_clocks"),
    [
        (("Mon_Nov_23_10:05:50_2026", "Mon_Nov_23_10:05:51_2026"), True),
        (("20261123-100550/ckpt", "20261123-100551/ckpt"), True),
        ((str(NOW - 2), str(NOW - 1)), True),
        ((f"{NOW - 2}.5", f"{NOW - 1}.25"), True),
        (("1795000467", "1795000468"), False),
        (("pid1234567", "pid1234570"), False),
        (("video_000123", "video_000124"), False),
        (("n01440764", "n01484850"), False),
        (("20261123-100550", "20261123-100550"), False),
        (("20261123-100550-rank0", "20261123-100550-rank1"), False),
        (("20261123-100550-rank0", "20261123-100551-rank1"), False),
        (("part0", "part1"), False),
        (("run-3f2a", "run-9c1b"), False),
    ],
)
def test_a_folder_that_each_rank_makes(names: tuple[str, str], by_clocks: bool) -> None:
    made = {
        rank: replace(
            recording(rank), clock=NOW - 1.0, files=(FileEvent("mkdir", f"/jobs/log/{name}", 1.0, where(30)),)
        )
        for rank, name in enumerate(names)
    }
    assert [named.at for named in named_by_clocks(made)] == ([where(30)] if by_clocks else [])


def test_a_log_that_each_rank_opens() -> None:
    made = {
        rank: replace(
            recording(rank),
            clock=NOW - 1.0,
            record=Record.made(LogWriter("tensorboard", f"/jobs/Nov23_10-05-5{rank}_host", where(31), 1.0)),
        )
        for rank in range(2)
    }
    (named,) = named_by_clocks(made)
    assert named.paths == {0: "/jobs/Nov23_10-05-50_host", 1: "/jobs/Nov23_10-05-51_host"}

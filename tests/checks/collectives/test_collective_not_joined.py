from ddpdoctor.blame.frames import Frame
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.model import Source, Where
from tests.support.judging import only_finding, passed, skipped

WAIT = (
    Frame("all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2900),
)
STUCK = (Frame("read_image", "data.py", 31),)
STEP = "all_reduce sum float32 8 MB"


def hung(*stacks: tuple[Frame, ...]) -> GroupRecord:
    ranks = tuple(
        RankRecord(rank, joined=True, current="collectives", step=STEP, steps=3, stack=stack)
        for rank, stack in enumerate(stacks)
    )
    return GroupRecord(
        Launch(), ranks, stage=Stage.MEASURE, broken="the group stopped answering", hung="collectives"
    )


def test_the_rank_elsewhere_is_named_with_its_line():
    finding = only_finding("DD301", Source.GROUP, hung(WAIT, STUCK, WAIT))
    assert finding.headline == f"rank 1 did not join {STEP}"
    assert finding.ranks == (1,)
    assert finding.where == Where("data.py", 31, "read_image")


def test_nobody_late_points_at_the_connection():
    finding = only_finding("DD301", Source.GROUP, hung(WAIT, WAIT))
    assert finding.headline == f"all of ranks 0-1 wait in {STEP}, and none is late"
    assert finding.ranks == (0, 1)


def test_a_group_that_ended_passes():
    assert "no rank" in passed("DD301", Source.GROUP, GroupRecord(Launch(), seconds=1.2)).text


def test_a_rank_that_died_is_another_disease():
    record = GroupRecord(Launch(), stage=Stage.MEASURE, broken="rank 1 died in weights")
    assert skipped("DD301", Source.GROUP, record).reason == "rank 1 died in weights"

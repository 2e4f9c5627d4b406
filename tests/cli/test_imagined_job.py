"""Which ranks of a job of any size are real."""

import pytest

from ddpdoctor.cli.launch_from_options import imagined_of, usual_ranks
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.launch import Imagined, Launch


@pytest.mark.parametrize(
    ("size", "nproc", "ranks"),
    [(512, 8, (0, 1, 8, 503, 510, 511)), (8, 8, (0, 1, 6, 7)), (2, 2, (0, 1)), (9, 8, (0, 1, 7, 8))],
)
def test_the_usual_ranks_are_of_both_ends(size, nproc, ranks):
    assert usual_ranks(size, nproc) == ranks
    assert sum(ranks) * size == sum(range(size)) * len(ranks)


def test_hosts_have_eight_ranks_unless_asked_otherwise():
    options = CheckOptions(words=["train.py"], rehearse=True, world_size=4)
    assert imagined_of(options) == Imagined(4, 4, (0, 1, 2, 3))
    assert imagined_of(CheckOptions(words=["train.py"])) is None


def test_a_launch_keeps_what_was_imagined():
    launch = Launch(nproc=3, imagined=Imagined(64, 8, (0, 8, 63)))
    assert Launch.from_json(launch.to_json()) == launch
    assert launch.ranks == (0, 8, 63)
    assert Launch(nproc=2, nnodes=2, node_rank=1).ranks == (2, 3)

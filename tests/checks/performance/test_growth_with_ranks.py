"""What takes more of each rank the more ranks there are: process groups made in loops, objects gathered by all."""

import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.recorder.patches.calls import GatheredObject
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def making(groups, ranks):
    """Every rank makes so many groups at one line."""

    def of(rank, recording):
        made = [
            GroupEvent("new_group", 1.0, where(21), "gloo", -1, 1, (number % ranks,), id=number + 5)
            for number in range(groups)
        ]
        return replace(recording, groups=(*recording.groups, *made))

    return recorded(ranks, of)


def test_a_group_for_each_rank():
    finding = only_finding("DD607", Source.RUN, making(40, 40))
    assert finding.headline == "one line makes 40 process groups in a job of 40 ranks"
    assert finding.where == where(21)


def test_a_group_for_each_pair_is_usual():
    passed("DD607", Source.RUN, making(20, 40))
    skipped("DD607", Source.RUN, making(8, 8))


def gathering(size, world_size):
    """Two real ranks give an object of this size."""
    event = GatheredObject(5.0, size, where(60))
    return replace(recorded(2, lambda _, it: replace(it, record=Record.made(event))), world_size=world_size)


def test_objects_of_all_ranks_on_every_rank():
    finding = only_finding("DD608", Source.RUN, gathering(4 << 20, 512))
    assert finding.headline == "each of 512 ranks receives 2 GiB from all_gather_object"
    assert finding.where == where(60)


@pytest.mark.parametrize("size", [8192, 1 << 20])
def test_small_objects_pass(size):
    passed("DD608", Source.RUN, gathering(size, 512))
    skipped("DD608", Source.RUN, recorded(2))

"""DD401 on a training run."""

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.files import FileEvent, FileRead, Load, Save
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Collective, Wrapper
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where

SAVE = Save("/jobs/last.pt", where(80), 20.0, 20.5, 4096)


def racing(*loads, save=SAVE, barriers=(), operation="barrier", peer=None, world_size=2, **fields):
    """Rank 0 saves, rank r + 1 loads; every rank makes these collectives."""

    def change(rank, one):
        calls = tuple(Collective(time, where(81), operation, peer=peer) for time in barriers)
        made = replace(one, collectives=calls, **fields)
        if rank == 0:
            return replace(made, saves=(save,))
        return replace(made, loads=(loads[rank - 1],) if rank <= len(loads) else ())

    return recorded(world_size, change)


def load(begin, **fields):
    return Load("/jobs/last.pt", where(82), begin, begin + 0.1, **fields)


def test_a_read_with_no_barrier_after_the_write():
    finding = only_finding("DD401", Source.RUN, racing(load(20.7)))
    assert finding.headline == "rank 1 reads 'last.pt' without waiting for rank 0 to write it"
    assert finding.ranks == (1,)
    assert finding.where == where(82)
    assert [one.text for one in finding.evidence] == [
        "writes 4 KiB at train.py:80",
        "reads at train.py:82, 200.0 ms after it was complete, this time",
    ]


def test_where_ranks_decide_apart_whether_the_file_is_there():
    """The rank that writes does not read it, or reads it as the others do."""
    apart = only_finding("DD401", Source.RUN, racing(load(20.7)))
    assert "broadcast_object_list(resume)" in apart.fix
    together = racing(load(20.7))
    writer = replace(together.recordings()[0], loads=(load(20.6),))
    together = recorded(2, lambda rank, _: writer if rank == 0 else together.recordings()[rank])
    assert "dist.barrier()" in only_finding("DD401", Source.RUN, together).fix


def test_every_rank_that_races_is_named():
    error = "FileNotFoundError: no such file"
    finding = only_finding("DD401", Source.RUN, racing(load(20.2), load(20.1, error=error), world_size=3))
    assert finding.ranks == (1, 2)
    assert finding.evidence[1].text.endswith("FileNotFoundError: no such file'")


def test_a_barrier_between_them_passes():
    said = passed("DD401", Source.RUN, racing(load(20.7), barriers=(20.6,)))
    assert said.text == "rank 1 read checkpoints only after they were complete"


def test_a_barrier_before_the_write_does_not_help():
    only_finding("DD401", Source.RUN, racing(load(20.7), barriers=(19.0,)))


def test_what_rank_0_broadcasts_orders_what_rank_1_does_not():
    passed("DD401", Source.RUN, racing(load(20.7), barriers=(20.6,), operation="broadcast", peer=0))
    only_finding("DD401", Source.RUN, racing(load(20.7), barriers=(20.6,), operation="broadcast", peer=1))


def test_training_between_them_passes():
    early = replace(SAVE, begin=0.1, end=0.2)
    passed("DD401", Source.RUN, racing(load(3.0), save=early))


def test_a_read_at_the_start_of_what_is_written_later_passes():
    passed("DD401", Source.RUN, racing(load(0.1), save=replace(SAVE, begin=20.0)))


def test_a_model_that_is_wrapped_between_them_passes():
    wrappers = (Wrapper(0, where(30), 0.1, "Linear"), Wrapper(1, where(30), 20.6, "Linear"))
    passed("DD401", Source.RUN, racing(load(20.7), wrappers=wrappers))


def test_another_host_may_have_another_file():
    trace = racing(load(20.7))
    far = replace(trace.ranks[1], recording=replace(trace.ranks[1].recording, host="node1"))
    assert "no rank reads" in skipped("DD401", Source.RUN, replace(trace, ranks=(trace.ranks[0], far))).reason


MISSED = Raised("FileNotFoundError", "[Errno 2] No such file or directory: 'vocab.json'", 20.2, at=where(82))


def missing(path="/jobs/vocab.json", barriers=(), own=(), **more):
    """Rank 0 writes a file, and rank 1 fails since there is none."""

    def change(rank, one):
        calls = tuple(Collective(time, where(81), "barrier") for time in barriers)
        if rank == 0:
            return replace(one, collectives=calls, files=(FileEvent("write", path, 20.5, where(80)),))
        return replace(one, collectives=calls, files=own, raised=MISSED, **more)

    return recorded(change=change)


def test_a_file_that_is_not_there_yet():
    finding = only_finding("DD401", Source.RUN, missing())
    assert finding.headline == "rank 1 needs 'vocab.json' without waiting for rank 0 to write it"
    assert (finding.where, finding.ranks) == (where(82), (1,))
    assert finding.evidence[0].text == "writes it at train.py:80"


def test_a_file_that_is_not_there_yet_is_not_half_read_too():
    read = FileRead("/jobs/vocab.json", 20.1, where(82))
    trace = missing(record=Record.made(read))
    failed = replace(trace.ranks[1], finished=False, failure=Failure(MISSED.type, MISSED.message, "", 20.2))
    finding = only_finding("DD401", Source.RUN, replace(trace, ranks=(trace.ranks[0], failed), status=1))
    assert finding.headline == "rank 1 needs 'vocab.json' without waiting for rank 0 to write it"


def test_a_file_that_is_missing_for_another_reason():
    skipped("DD401", Source.RUN, missing("/jobs/words.json"))
    skipped("DD401", Source.RUN, missing(own=(FileEvent("remove", "/jobs/vocab.json", 20.1, where(81)),)))
    skipped("DD401", Source.RUN, missing(barriers=(20.3,)))


def half_read(*, background=False, barrier=None, line=91, path="/jobs/index.json"):
    """Rank 0 begins to write a file, and rank 1 fails to understand what it reads."""

    def change(rank, one):
        calls = () if barrier is None else (Collective(barrier, where(85), "barrier", number=0),)
        one = replace(one, collectives=calls)
        if rank == 0:
            return replace(one, files=(FileEvent("write", path, 20.0, where(80), background),))
        raised = Raised("JSONDecodeError", "Expecting value", 20.6, at=where(line))
        read = FileRead("/jobs/index.json", 20.5, where(90))
        return replace(one, record=Record.made(read), raised=raised, exit=None)

    trace = recorded(change=change)
    failure = Failure("JSONDecodeError", "Expecting value", "", 20.6)
    failed = replace(trace.ranks[1], finished=False, failure=failure)
    return replace(trace, ranks=(trace.ranks[0], failed), status=1)


def test_half_a_file_that_is_no_checkpoint():
    finding = only_finding("DD401", Source.RUN, half_read())
    assert finding.headline == "rank 1 reads 'index.json' while rank 0 may still write it"
    assert finding.where == where(91)
    assert finding.evidence[0].text == "writes it at train.py:80"


def test_a_thread_may_write_on_behind_a_barrier():
    finding = only_finding("DD401", Source.RUN, half_read(background=True, barrier=20.3))
    assert finding.evidence[0].text == "writes it at train.py:80, in a background thread"
    assert finding.fix.startswith("thread.join()")


@pytest.mark.parametrize("other", [{"barrier": 20.3}, {"line": 140}, {"path": "/jobs/other.json"}])
def test_a_failure_that_is_not_about_a_file_of_another_rank(other):
    assert "no rank reads" in skipped("DD401", Source.RUN, half_read(**other)).reason

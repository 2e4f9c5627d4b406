"""DD020 on recorded runs: files that several ranks write, and those who take turns."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ddpdoctor.model import Level, Passed, Skipped, Source, Where
from ddpdoctor.recorder.events.files import FileEvent, LogWriter, PathAsked, Save
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, where

CHECK = check("DD020")
PATH = "/jobs/data/words.txt"


def written(
    path: str = PATH,
    action: str = "write",
    locks: tuple[FileEvent, ...] = (),
    emptied: bool = False,
    **more: object,
) -> Trace:
    """Two ranks that wrote a path, rank 1 two seconds after rank 0."""

    def change(rank: int, one: Recording) -> Recording:
        event = FileEvent(action, path.format(rank=rank), 10.0 + 2 * rank, where(15), emptied=emptied)
        return replace(one, **{**more, "files": (*locks, event)})

    return recorded(change=change)


def test_two_ranks_write_a_file() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, written())
    assert finding.headline == "ranks 0-1 wrote '/jobs/data/words.txt' without synchronizing"
    assert (finding.level, finding.where) == (Level.WARN, where(15))


@pytest.mark.parametrize("emptied", [True, False])
def test_what_comes_of_it_where_ranks_empty_the_file_and_where_they_add_to_it(emptied: bool) -> None:
    (finding,) = ask(CHECK.code, Source.RUN, written(emptied=emptied, steps=(TrainingStep(0, 9.0),)))
    assert ("empties it" in finding.why, "each rank adds" in finding.why) == (emptied, not emptied)


@pytest.mark.parametrize(("step", "advice"), [(9.0, "dist.get_rank() == 0"), (11.0, "local_rank == 0")])
def test_results_are_written_on_rank_0_and_data_on_one_rank_of_each_host(step: float, advice: str) -> None:
    """Rank 0 writes at 10.0, rank 1 at 12.0."""
    (finding,) = ask(CHECK.code, Source.RUN, written(steps=(TrainingStep(0, step),)))
    assert advice in finding.fix


def test_two_ranks_unpack_an_archive() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, written(action="extract"))
    assert "extracted" in finding.headline


@pytest.mark.parametrize("time", [9.0, 13.0])
def test_a_barrier_elsewhere_is_no_turn(time: float) -> None:
    barrier = Collective(time, where(14), "barrier", number=0)
    assert len(ask(CHECK.code, Source.RUN, written(collectives=(barrier,)))) == 1


def test_a_barrier_between_makes_turns() -> None:
    barrier = Collective(11.0, where(14), "barrier", number=0)
    assert isinstance(ask(CHECK.code, Source.RUN, written(collectives=(barrier,))), Passed)


@pytest.mark.parametrize("group", [None, (0, 1)])
def test_a_rank_that_waits_in_the_barrier_before_the_other_writes_takes_its_turn(group) -> None:
    def change(rank: int, one: Recording) -> Recording:
        barrier = Collective((11.0, 9.0)[rank], where(14), "barrier", group, number=0)
        return replace(one, collectives=(barrier,))

    right = written()
    ranks = tuple(replace(rank, recording=change(rank.rank, rank.recording)) for rank in right.ranks)
    assert isinstance(ask(CHECK.code, Source.RUN, replace(right, ranks=ranks)), Passed)


def test_a_lock_makes_turns() -> None:
    lock = FileEvent("lock", "/jobs/data/words.lock", 9.0, where(13))
    assert isinstance(ask(CHECK.code, Source.RUN, written(locks=(lock,))), Passed)


def test_a_lock_of_a_library_before_the_group_makes_none() -> None:
    lock = FileEvent("lock", "/home/me/.cache/fontlist.json.matplotlib-lock", 1.0, where(3))
    barrier = Collective(5.0, where(9), "barrier", number=0)
    assert len(ask(CHECK.code, Source.RUN, written(locks=(lock,), collectives=(barrier,)))) == 1


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/jobs/data/{rank}.txt", {}),
        ("/jobs/words.lock", {}),
        ("/jobs/last.pt", {"saves": (Save("/jobs/last.pt", where(60), 10.0),)}),
        (
            "/jobs/runs/events.1",
            {"record": Record.made(LogWriter("tensorboard", "/jobs/runs", where(12), 1.0))},
        ),
    ],
)
def test_what_is_nobodys_or_another_checks(path: str, more: dict) -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, written(path, **more)), Passed)


def test_a_log_of_rank_0_that_every_rank_empties() -> None:
    def change(rank: int, recording: Recording) -> Recording:
        events = [FileEvent("write", "/jobs/train.log", 10.0 + rank, where(15), emptied=True)]
        events += [LogWriter("logging", "/jobs/train.log", where(15), 12.0)] if rank == 0 else []
        return replace(recording, record=Record.made(*events))

    (finding,) = ask(CHECK.code, Source.RUN, recorded(change=change))
    assert finding.where == where(15)


def test_a_file_that_workers_of_two_ranks_write() -> None:
    def change(rank: int, recording: Recording) -> Recording:
        worker = Record.made(FileEvent("write", PATH, 10.0 + rank, where(15)))
        return replace(recording, children=(worker,))

    (finding,) = ask(CHECK.code, Source.RUN, recorded(change=change))
    assert (finding.ranks, finding.where) == ((0, 1), where(15))


def test_hosts_have_files_of_their_own() -> None:
    two = written()
    ranks = tuple(replace(one, recording=replace(one.recording, host=f"node{one.rank}")) for one in two.ranks)
    assert isinstance(ask(CHECK.code, Source.RUN, replace(two, ranks=ranks)), Passed)


def test_one_rank_races_with_nobody() -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, recorded(1)), Skipped)


def too_late(
    action: str = "mkdir", kind: str = "FileExistsError", late: tuple[int, ...] = (1,), **more: object
) -> Trace:
    """Two ranks that do what one of them can, where the late ones fail."""

    def change(rank: int, one: Recording) -> Recording:
        event = FileEvent(action, "/jobs/run/samples", 10.0 + 2 * rank, where(15))
        raised = Raised(kind, "[Errno 17] File exists: './run/samples'", 14.0, at=where(16))
        return replace(one, files=(event,), raised=raised if rank in late else None, **more)

    return recorded(change=change)


def test_a_folder_that_each_rank_makes() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, too_late())
    assert finding.headline == (
        "ranks 0-1 make '/jobs/run/samples' without synchronizing, and rank 1 failed: already done"
    )
    assert (finding.level, finding.where, finding.ranks) == (Level.FAIL, where(16), (0, 1))


def test_a_file_that_each_rank_removes() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, too_late("remove", "FileNotFoundError"))
    assert "ranks 0-1 remove" in finding.headline


@pytest.mark.parametrize(
    "more",
    [
        {"late": ()},
        {"late": (0, 1)},  # it was there before
        {"kind": "KeyError"},
        {"collectives": (Collective(11.0, where(14), "barrier", number=0),)},
    ],
)
def test_a_folder_that_nobody_races_for(more: dict) -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, too_late(**more)), Passed)


def asked_then_made(
    line_of: Callable[[int], int] = lambda rank: 14,
    made: str = "mkdir",
    there: tuple[int, ...] = (1,),
    at: Where | None = None,
    **more: object,
) -> Trace:
    """Each rank asks for a path, rank 1 two seconds after rank 0, which makes it."""

    def change(rank: int, one: Recording) -> Recording:
        asked = PathAsked("/jobs/out", 10.0 + 2 * rank, where(line_of(rank)), there=rank in there)
        files = (FileEvent(made, "/jobs/out", 10.1, at or where(15)),) if rank == 0 else ()
        return replace(one, **{"record": Record.made(asked), **more, "files": files})

    return recorded(change=change)


def test_a_folder_that_each_rank_makes_where_it_finds_none() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, asked_then_made())
    assert finding.headline == "ranks 0-1 make '/jobs/out' where they find none, without synchronizing"
    assert (finding.level, finding.where, finding.ranks) == (Level.WARN, where(15), (0, 1))
    assert finding.fix == "os.makedirs(path, exist_ok=True)"


def test_a_rank_that_found_what_others_raced_for_belongs_to_the_race() -> None:
    """Which rank comes late is chance: its turn to find none comes in another run."""

    def change(rank: int, one: Recording) -> Recording:
        late = rank == 0
        asked = PathAsked("/jobs/out", 10.5 if late else 10.0, where(14), there=late)
        files = () if late else (FileEvent("write", "/jobs/out", 10.1, where(15)),)
        return replace(one, record=Record.made(asked), files=files)

    (finding,) = ask(CHECK.code, Source.RUN, recorded(3, change=change))
    assert finding.headline == "ranks 0-2 write '/jobs/out' where they find none, without synchronizing"
    assert (finding.where, finding.ranks) == (where(15), (0, 1, 2))
    assert [(row.text, row.ranks) for row in finding.evidence] == [("wrote '/jobs/out'", (1, 2))]


def test_a_rank_that_found_what_another_made_too_late_belongs_to_the_race() -> None:
    def change(rank: int, one: Recording) -> Recording:
        last = rank == 0
        asked = PathAsked("/jobs/out", 10.5 if last else 10.0, where(14), there=last)
        files = () if last else (FileEvent("mkdir", "/jobs/out", 10.1 + 0.1 * rank, where(15)),)
        raised = Raised("FileExistsError", "[Errno 17] File exists: 'out'", 10.3, at=where(15))
        return replace(one, record=Record.made(asked), files=files, raised=raised if rank == 2 else None)

    (finding,) = ask(CHECK.code, Source.RUN, recorded(3, change=change))
    assert (
        finding.headline
        == "ranks 0-2 make '/jobs/out' without synchronizing, and rank 2 failed: already done"
    )
    assert (finding.where, finding.ranks) == (where(15), (0, 1, 2))


def test_of_several_questions_of_a_rank_the_first_counts() -> None:
    """Its workers ask again in the next epoch, behind collectives."""
    barrier = Collective(20.0, where(14), "barrier", number=0)
    trace = asked_then_made(collectives=(barrier,))
    ranks = []
    for rank in trace.ranks:
        assert rank.recording is not None
        again = PathAsked("/jobs/out", 30.0, where(14))
        asked = rank.recording.events(PathAsked)
        ranks.append(replace(rank, recording=replace(rank.recording, children=(Record.made(again, *asked),))))
    assert len(ask(CHECK.code, Source.RUN, replace(trace, ranks=tuple(ranks)))) == 1


def test_a_folder_of_rank_0_that_others_wait_for() -> None:
    """They ask at another line, or after a barrier at the same one."""
    assert isinstance(ask(CHECK.code, Source.RUN, asked_then_made(lambda rank: 14 + 5 * rank)), Passed)
    barrier = Collective(11.0, where(16), "barrier", number=0)
    assert isinstance(ask(CHECK.code, Source.RUN, asked_then_made(collectives=(barrier,))), Passed)


def test_a_log_that_every_rank_empties() -> None:
    def change(rank: int, one: Recording) -> Recording:
        event = FileEvent("write", "/jobs/train.log", 10.0 + 2 * rank, where(15), emptied=True)
        return replace(one, files=(event,))

    (finding,) = ask(CHECK.code, Source.RUN, recorded(change=change))
    assert finding.headline == "ranks 0-1 wrote '/jobs/train.log' without synchronizing"


def test_a_log_to_which_every_rank_adds_is_left_alone() -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, written("/jobs/train.log")), Passed)


def test_a_file_that_each_rank_writes_where_it_finds_none() -> None:
    """Rank 1 found it, though nothing says that it was complete."""
    (finding,) = ask(CHECK.code, Source.RUN, asked_then_made(made="write"))
    assert finding.headline == "ranks 0-1 write '/jobs/out' where they find none, without synchronizing"
    assert (finding.level, finding.where, finding.ranks) == (Level.WARN, where(15), (0, 1))
    assert "while another rank has truncated it" in finding.why
    assert "local_rank == 0" in finding.fix


@pytest.mark.parametrize("made", ["mkdir", "write"])
def test_a_rank_that_finds_none_and_makes_none_leaves_it_to_the_other(made: str) -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, asked_then_made(made=made, there=())), Passed)


def test_a_path_that_is_made_under_a_condition_on_the_rank(tmp_path: Path) -> None:
    """``if not os.path.exists(path) and rank == 0:`` asks on every rank."""
    script = tmp_path / "train.py"
    script.write_text(
        "if not os.path.exists(path) and me == 0:\n    os.makedirs(path)\n"
        "import torch.distributed as dist\nme = dist.get_rank()\n"
    )
    trace = asked_then_made(at=Where(str(script), 2, "<module>"))
    assert isinstance(ask(CHECK.code, Source.RUN, trace), Passed)

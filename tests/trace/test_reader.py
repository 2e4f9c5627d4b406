"""Which process a rank's record is, where several have one rank."""

from dataclasses import replace

from ddpdoctor.recorder.events.process import Exit, GroupEvent, Raised
from ddpdoctor.redact import mask_files
from ddpdoctor.trace.reader import read_run
from tests.support import records


def write(folder, pid, *, given, joined, began):
    """The record of a process that its launcher gave one rank, and that joined as another."""
    environ = {"RANK": str(given), "TORCHELASTIC_RUN_ID": "none"}
    arguments = {"rank": joined, "world_size": 2}
    joining = GroupEvent("joining", began + 1, None, arguments=arguments, environ=environ)
    records.write(folder / f"{pid}.jsonl", records.start(pid, began, **environ), joining)


def test_after_a_restart_the_last_counts(tmp_path):
    write(tmp_path, 10, given=0, joined=0, began=1.0)
    write(tmp_path, 11, given=0, joined=0, began=5.0)
    assert read_run(tmp_path).ranks[0].pid == 11


def test_of_several_that_took_one_rank_it_is_the_one_that_was_given_another(tmp_path):
    """Whichever was the last: mp.spawn inside of torchrun starts them all at once."""
    for given in (0, 1):
        for joined in (0, 1):
            write(
                tmp_path, 20 + 2 * given + joined, given=given, joined=joined, began=1.0 + abs(given - joined)
            )
            write(
                tmp_path, 30 + 2 * given + joined, given=given, joined=joined, began=4.0 - abs(given - joined)
            )
    ranks = read_run(tmp_path).ranks
    assert {rank: one.environ["RANK"] for rank, one in ranks.items()} == {0: "1", 1: "0"}


def place(folder, pid, *, rank, local, began, ended, parent=5, by_torchrun=True, size=4, host=""):
    """The record of a process at a place of a launcher."""
    environ = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(size)}
    environ |= {"TORCHELASTIC_RESTART_COUNT": "0"} if by_torchrun else {}
    start = replace(records.start(pid, began, parent=parent, **environ), host=host)
    records.write(folder / f"{pid}.jsonl", start, GroupEvent("init", ended, None, rank=rank, size=4))


def test_after_a_restart_by_which_a_host_has_other_ranks_those_count(tmp_path):
    """As where the first host was lost, and torchrun goes on with fewer."""
    for local in (0, 1):
        place(tmp_path, 10 + local, rank=2 + local, local=local, began=1.0, ended=4.0)
        place(tmp_path, 20 + local, rank=local, local=local, began=6.0, ended=9.0)
    assert {rank: recording.pid for rank, recording in read_run(tmp_path).ranks.items()} == {0: 20, 1: 21}


def test_a_host_that_was_lost_is_no_part_of_the_attempt_without_it(tmp_path):
    """Its processes have no successors, on whatever clock; torchrun gives the others fewer ranks, twice here."""
    records.write(tmp_path / "5.jsonl", replace(records.start(5), host="a"))  # its torchrun is recorded, too
    for local in (0, 1):
        for number, host in enumerate(("a", "b", "c")):
            pid, rank = 10 * number + local, 2 * number + local
            place(
                tmp_path,
                pid,
                rank=rank,
                local=local,
                began=100.0 * number,
                ended=100.0 * number + 4,
                size=6,
                host=host,
            )
        for number, host in enumerate(("b", "c")):
            pid, rank, began = 30 + 10 * number + local, 2 * number + local, 100.0 * number + 106.0
            place(tmp_path, pid, rank=rank, local=local, began=began, ended=began + 4, host=host)
        place(tmp_path, 50 + local, rank=local, local=local, began=120.0, ended=130.0, size=2, host="b")
    recorded = read_run(tmp_path)
    assert {rank: recording.pid for rank, recording in recorded.ranks.items()} == {0: 50, 1: 51}
    assert recorded.lost == {"a": (0, 1), "c": (2, 3)}


def test_a_launcher_that_starts_ranks_of_several_sizes_has_lost_no_host(tmp_path):
    for rank in (0, 1):
        place(tmp_path, 10 + rank, rank=rank, local=rank, began=1.0, ended=4.0, size=2, host="a")
        place(tmp_path, 20 + rank, rank=rank, local=rank, began=6.0, ended=9.0, size=4, host="b", parent=6)
    assert read_run(tmp_path).lost == {}


def test_a_second_torchrun_of_another_size_is_no_lost_host_of_the_first_which_started_again(tmp_path):
    """A launch line trains on two processes, which fail once, and evaluates on one; both jobs are called none."""
    for attempt, began in enumerate((1.0, 6.0)):
        for local in (0, 1):
            pid = 10 * attempt + local
            place(tmp_path, pid, rank=local, local=local, began=began, ended=began + 3, size=2, host="a")
    place(tmp_path, 50, rank=0, local=0, began=20.0, ended=29.0, parent=6, size=1, host="a")
    assert {rank: recording.pid for rank, recording in read_run(tmp_path).ranks.items()} == {0: 50}


def test_a_job_that_ran_before_is_kept_unless_it_failed_and_was_repeated(tmp_path):
    for local in (0, 1):
        place(tmp_path, 10 + local, rank=local, local=local, began=1.0, ended=4.0, size=2)
    place(tmp_path, 20, rank=0, local=0, began=6.0, ended=9.0, parent=6, size=1)
    recorded = read_run(tmp_path)
    assert list(recorded.ranks) == [0]
    assert recorded.before == ()  # no process of it has said how it ended
    for local in (0, 1):
        records.write(tmp_path / f"{10 + local}.jsonl", Exit("returned", 4.5))
    (before,) = read_run(tmp_path).before
    assert {rank: recording.pid for rank, recording in before.items()} == {0: 10, 1: 11}


def test_a_script_without_a_group_that_follows_on_each_rank_is_no_job(tmp_path):
    """As a shell that torchrun starts runs one after the other."""
    write(tmp_path, 10, given=0, joined=0, began=1.0)
    records.write(tmp_path / "20.jsonl", records.start(20, 5.0, RANK="0"))
    recorded = read_run(tmp_path)
    assert recorded.ranks[0].pid == 10
    assert recorded.before == ()


def test_processes_that_run_at_one_time_are_of_one_attempt_whatever_they_call_themselves(tmp_path):
    """As where one shell starts the ranks of two hosts that are none."""
    for rank in (0, 1):
        place(tmp_path, 10 + rank, rank=rank, local=0, began=1.0 + rank, ended=9.0)
        place(tmp_path, 20 + rank, rank=2 + rank, local=0, began=12.0, ended=15.0, parent=6 + rank)
    assert read_run(tmp_path).ranks.keys() == {0, 1, 2, 3}


def test_a_rank_that_ended_before_another_began_counts_where_slurm_gave_both_one_local_rank(tmp_path):
    """As with one GPU for each task, all of which have one slurmstepd for a parent."""
    for rank, began in enumerate((1.0, 6.0)):
        place(tmp_path, rank, rank=rank, local=0, began=began, ended=began + 2, by_torchrun=False)
    assert read_run(tmp_path).ranks.keys() == {0, 1}


def test_a_record_whose_secrets_were_masked_is_read_as_it_was(tmp_path):
    environ = {"RANK": "0", "API_TOKEN": "f4c3b00c5ec7e7"}
    raised = Raised("ValueError", f"refused {environ['API_TOKEN']}", 2.0)
    records.write(tmp_path / "7.jsonl", records.start(7, RANK="0"), raised)
    mask_files(tmp_path, environ)
    told = read_run(tmp_path).ranks[0].raised
    assert told.type == "ValueError"
    assert environ["API_TOKEN"] not in told.message

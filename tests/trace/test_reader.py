"""Which process a rank's record is, where several have one rank."""

from ddpdoctor.recorder.events.process import GroupEvent, Raised
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


def test_a_record_whose_secrets_were_masked_is_read_as_it_was(tmp_path):
    environ = {"RANK": "0", "API_TOKEN": "f4c3b00c5ec7e7"}
    raised = Raised("ValueError", f"refused {environ['API_TOKEN']}", 2.0)
    records.write(tmp_path / "7.jsonl", records.start(7, RANK="0"), raised)
    mask_files(tmp_path, environ)
    told = read_run(tmp_path).ranks[0].raised
    assert told.type == "ValueError"
    assert environ["API_TOKEN"] not in told.message

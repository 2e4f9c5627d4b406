from ddpdoctor.model import Source
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.training import Collective
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def saving(save_of, world_size=2, barriers=(), host_of=lambda rank: "node0"):
    def change(rank, one):
        calls = tuple(Collective(time, where(81), "barrier") for time in barriers)
        return replace(one, saves=save_of(rank), collectives=calls, host=host_of(rank))

    return recorded(world_size, change)


def save(path="/jobs/last.pt", begin=20.0):
    return Save(path, where(80), begin, begin + 0.1, 2048)


def test_one_path_on_every_rank():
    finding = only_finding("DD402", Source.RUN, saving(lambda rank: (save(), save(begin=21.0)), 3))
    assert finding.headline == "ranks 0-2 write the same file 'last.pt'"
    assert finding.where == where(80)
    assert finding.evidence[0].text == "saved 2 times, 2 KiB"


def test_the_size_is_that_of_the_whole_file_where_a_rank_saw_it_emptied_by_another():
    finding = only_finding("DD402", Source.RUN, saving(lambda rank: (replace(save(), size=2048 * rank),)))
    assert [row.text for row in finding.evidence] == ["saved 1 time, 2 KiB"]


def test_several_files_are_one_finding():
    finding = only_finding(
        "DD402", Source.RUN, saving(lambda rank: (save(), save("/jobs/best.pt"), save("/jobs/1.pt")))
    )
    assert finding.headline.endswith("'last.pt' and 2 more files")


def test_a_shard_of_each_rank_passes():
    said = passed("DD402", Source.RUN, saving(lambda rank: (save(f"/jobs/shard{rank}.pt"),)))
    assert said.text == "2 files saved, each by one rank"


def test_rank_0_alone_passes():
    passed("DD402", Source.RUN, saving(lambda rank: (save(),) if rank == 0 else ()))


def test_ranks_that_take_turns_are_right():
    passed("DD402", Source.RUN, saving(lambda rank: (save(begin=20.0 + rank),), barriers=(20.5,)))


def test_buffers_and_devices_are_no_files():
    skipped("DD402", Source.RUN, saving(lambda rank: (save(""),)))
    passed("DD402", Source.RUN, saving(lambda rank: (save("/dev/null"),)))


def test_disks_of_each_host_are_not_one():
    passed("DD402", Source.RUN, saving(lambda rank: (save(),), host_of=lambda rank: f"node{rank}"))

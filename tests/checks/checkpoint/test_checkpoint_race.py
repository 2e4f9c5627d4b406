from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped


def value(after="whole", during=(), host="node0", error=None):
    size = {"whole": 4096, "part": 1024, "nothing": 0}[after]
    return {
        "error": error,
        "host": host,
        "during": list(during),
        "after": after,
        "bytes": size,
        "expected_bytes": 4096,
    }


def test_a_file_that_is_not_complete_after_the_barrier():
    finding = only_finding("DD401", Source.GROUP, record("checkpoint", [value(), value("part")]))
    assert finding.headline.startswith("rank 1 found 1 KiB of a checkpoint of 4 KiB in '/")
    assert finding.headline.endswith("' after the barrier")
    assert finding.evidence[0].text == "part, 1024 of 4096 bytes"


def test_a_file_that_is_not_there_on_the_same_host():
    finding = only_finding("DD401", Source.GROUP, record("checkpoint", [value(), value("nothing")]))
    assert finding.headline.startswith("rank 1 found no file of a checkpoint of 4 KiB")


def test_a_complete_file_passes_and_the_race_without_a_barrier_is_told():
    said = passed("DD401", Source.GROUP, record("checkpoint", [value(), value(during=["nothing", "part"])]))
    assert said.text == (
        "after the barrier every rank found rank 0's checkpoint complete; before it they found no file or part of it"
    )


def test_a_folder_of_each_host_is_no_race():
    said = passed("DD401", Source.GROUP, record("checkpoint", [value(), value("nothing", host="node1")]))
    assert "rank 1 on another host does not share the folder" in said.text


def test_a_folder_that_cannot_be_written_is_the_disks_finding():
    group = record("checkpoint", [{"error": "Read-only file system"}] * 2)
    reason = skipped("DD401", Source.GROUP, group).reason
    assert reason == "the checkpoint folder cannot be written: Read-only file system"


def test_one_rank_is_skipped():
    assert "two ranks" in skipped("DD401", Source.GROUP, record("checkpoint", [value()])).reason

from ddpdoctor.logs.nccl_facts import read_facts, table
from ddpdoctor.logs.read import Stream
from ddpdoctor.model import Evidence


def said(rank: int, *messages: str, host: str = "node-a") -> str:
    last = f"comm 0x1 rank {rank} nranks 4 cudaDev {rank % 2} busId 1000 - Init COMPLETE"
    return "".join(f"{host}:{100 + rank}:2 [{rank % 2}] NCCL INFO {one}\n" for one in (*messages, last))


def facts_of(text: str):
    return read_facts([Stream("job.log", [text.encode()])])


def test_ranks_are_numbered_by_what_they_say_and_equal_ones_share_a_line():
    text = "".join(
        said(rank, "Using network IB", "NCCL_IB_TIMEOUT set by environment to 22.") for rank in (3, 1, 0, 2)
    )
    assert table(facts_of(f"NCCL version 2.21.5+cuda12.4\n{text}")) == (
        Evidence("NCCL 2.21.5+cuda12.4", (0, 1, 2, 3)),
        Evidence("network IB: no device named", (0, 1, 2, 3)),
        Evidence("NCCL_IB_TIMEOUT='22'", (0, 1, 2, 3)),
    )


def test_transports_name_the_pairs():
    links = [f"Channel 0{channel}/0 : 0[0] -> 1[1] via P2P/CUMEM" for channel in range(4)]
    texts = [
        one.text
        for one in table(facts_of(said(0, *links, "Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0")))
    ]
    assert "over P2P/CUMEM: 0 -> 1" in texts
    assert "over NET/IB: 0 -> 2" in texts


def test_processes_that_do_not_tell_their_rank_are_numbered():
    facts = facts_of("node-a:7:7 [0] NCCL INFO Using network IB\nnode-a:8:8 [1] NCCL INFO Using network IB\n")
    assert facts.unnumbered
    assert list(facts.by_rank) == [0, 1]


def test_an_output_without_nccl():
    assert table(facts_of("step 1\n")) == ()

from ddpdoctor.figures import Strips, Tone
from ddpdoctor.logs.figures import sections
from tests.logs.test_nccl_facts import facts_of, said


def figures_of(text):
    return [figure for section in sections(facts_of(text)) for figure in section.figures]


def ring(ranks, via):
    """Each rank is connected to the next; of a pair, the transport is ``via(sender, receiver)``."""
    pairs = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    return "".join(
        said(a, "Using network IB", f"Channel 00/0 : {a}[0] -> {b}[1] via {via(a, b)}") for a, b in pairs
    )


def test_the_transport_between_each_pair_of_ranks():
    transports, facts = figures_of(ring(4, lambda a, b: "NET/Socket/0" if a == 3 else "P2P/CUMEM"))
    assert isinstance(transports, Strips)
    tones = [[(span.begin, span.tone) for span in row.spans] for row in transports.rows]
    assert tones == [[(1, Tone.WORK)], [(2, Tone.WORK)], [(3, Tone.WORK)], [(0, Tone.WAIT)]]
    assert [tone for tone, _ in transports.legend] == [Tone.WORK, Tone.WAIT]
    assert ("0-3", "network IB: no device named") in facts.rows


def test_of_many_ranks_some_are_shown():
    transports, _ = figures_of(ring(256, lambda a, b: "NET/IB/0"))
    assert len(transports.rows) <= 32
    assert "of 256 ranks" in transports.note


def test_an_output_without_nccl_has_no_section():
    assert figures_of("step 1\n") == []

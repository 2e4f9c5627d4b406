"""Dumps changed at random: each ends in a refusal of one line, or in a verdict that a report can show."""

import contextlib
import copy
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ddpdoctor.blame.hang_snapshot import Dump
from ddpdoctor.hang.flight import folder
from ddpdoctor.hang.flight.reduce import reduce
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.model import Finding, Level, Report
from ddpdoctor.redact import clean
from tests.support.diagnosis import diagnosis_of_dumps
from tests.support.flight import batch, dump, half, ring, waiting

RANKS = 3
WORLD = {"0": range(RANKS), "1": range(2)}
NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]
TEXTS = ["", "\x1b]0;x\x07", "\u202e", "\ud800", "[" * 50, "recv 0<-7", "nccl:send 1->99999999"]
NUMBERS = [True, -1, 0, 1 << 31, 1 << 63, 1 << 200, -1.5, float("nan")]
ODD = st.sampled_from(
    [None, b"\xff", *NUMBERS, *TEXTS, [], {}, (), [[]], [[[1]]], [None], {"": None}, NESTED]
)
VALUES = st.one_of(ODD, st.integers(-3, 9), st.text(max_size=5), st.lists(st.integers(), max_size=3))


def of_rank(rank: int) -> dict[str, Any]:
    """With everything that a dump can have: two groups, pairs, a batch, what waits."""
    pairs = [
        half("send", rank, (rank + 1) % RANKS, 1),
        half("recv", rank, (rank - 1) % RANKS, 2, pending=rank == 1),
    ]
    both = (
        batch([half("send", rank, 1 - rank, 3), half("recv", rank, 1 - rank, 3)], pending=True)
        if rank < 2
        else []
    )
    return dump([*ring(1, 3), *ring(1, 2, group="1"), *pairs, *both, *([waiting(4)] if rank else [])], WORLD)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The way to everything inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inside for place in places(one, (*path, key)))]


WHOLE = [of_rank(rank) for rank in range(RANKS)]
PLACES = [places(one)[1:] for one in WHOLE]
CHANGES = st.lists(
    st.integers(0, RANKS - 1).flatmap(
        lambda rank: st.tuples(st.just(rank), st.sampled_from(PLACES[rank]), VALUES)
    ),
    min_size=1,
    max_size=4,
)


def changed(changes: list) -> list[dict[str, Any]]:
    said = copy.deepcopy(WHOLE)
    for rank, path, value in changes:
        inside: Any = said[rank]
        with contextlib.suppress(LookupError, TypeError):  # a change before took the way there away
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = value
    return said


def reduced(said: list[dict[str, Any]]) -> dict[int, Dump]:
    dumps, refusals = {}, []
    for rank, one in enumerate(said):
        try:
            dumps[rank] = reduce(one, rank, Path(f"fr_rank_{rank}"))
        except Refused as why:
            refusals.append(str(why))
    assert all(map(str.isprintable, refusals))
    return dumps


@settings(max_examples=150, deadline=None)
@given(CHANGES)
@example([(0, ("entries", 0, "input_sizes"), NESTED)])
@example([(1, ("pg_config", "0", "ranks"), "[0, 1, 2, 3, 4, 5]")])
@example([(1, ("pg_config", "0", "ranks"), "[9]"), (0, ("pg_config", "0", "ranks"), "[]")])
@example([(0, ("entries", 5, "profiling_name"), "nccl:recv 0<-999")])
@example([(0, ("entries", 2, "input_dtypes"), "\n")])
@example([(1, ("pg_config", "0", "ranks"), "[0, 1, 2, 3]"), (1, ("entries",), [])])
def test_odd_values_end_in_a_refusal_or_a_verdict(changes):
    found = diagnosis_of_dumps(reduced(changed(changes)))
    if found is None:
        return
    finding = Finding(found.code, Level.FAIL, found.headline, found.why, found.fix, evidence=found.evidence)
    shown = clean(Report("0", (), 1, 0.0, findings=(finding,)), {}).findings[0]
    for text in (shown.headline, *(one.text for one in shown.evidence)):
        assert text.isprintable()


@st.composite
def bytes_changed(draw: st.DrawFn) -> bytes:
    whole = draw(st.sampled_from(WHOLE))
    data = bytearray(json.dumps(whole).encode() if draw(st.booleans()) else pickle.dumps(whole, protocol=2))
    for _ in range(draw(st.integers(0, 6))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(bytes_changed(), min_size=40, max_size=40))
def test_changed_bytes_end_in_a_dump_or_a_refusal(files):
    with tempfile.TemporaryDirectory() as place:
        named = {}
        for rank, data in enumerate(files):
            file = Path(place) / f"fr_rank_{rank}"
            file.write_bytes(data)
            named[file] = rank
        dumps = folder.read_files(named)
    assert len(dumps.ranks) + len(dumps.refused) == len(files)
    assert all(reason.isprintable() for reason in dumps.refused.values())
    diagnosis_of_dumps(dumps.ranks)

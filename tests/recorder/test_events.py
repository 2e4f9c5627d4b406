"""Events, written down and read again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from ddpdoctor.recorder.events.decode import Malformed, decode, head
from ddpdoctor.recorder.events.schema import Event, encode
from ddpdoctor.recorder.where import Site, Where
from ddpdoctor.trace.record import Record


@dataclass(frozen=True)
class Part:
    name: str
    shape: tuple[int, ...] = ()


@dataclass(slots=True)
class Seen(Event):
    KEY: ClassVar[str] = "number"

    number: int
    at: Where | None = None
    ratio: float | None = None
    parts: tuple[Part, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Other(Event):
    text: str = ""


SITE = Site("/jobs/train.py", 3, "main", 7)
FULL = Seen(1, SITE, 0.5, (Part("weight", (2, 3)), Part("bias")), {"a": 1})


def lines(*events: Event | Site) -> list[bytes]:
    return [encode(event, float(number)).encode() + b"\n" for number, event in enumerate(events)]


def test_what_was_written_is_read():
    read = decode(Seen, encode(FULL, 1.5).encode(), {7: SITE})
    assert read == FULL
    assert read.at is SITE


def test_what_has_its_default_is_not_written():
    assert encode(Seen(2), 1.5) == '{"k":"Seen","t":1.5,"number":2}'
    assert decode(Seen, b'{"k":"Seen","t":1.5,"number":2}', {}) == Seen(2)


def test_the_kind_and_the_time_of_a_line_are_known_without_the_rest_of_it():
    assert head(b'{"k":"Seen","t":12.25,"number":' + b"x" * 9) == ("Seen", 12.25)
    assert head(b"\x00\xff{") is None


def test_a_field_of_another_version_is_left_out():
    assert decode(Seen, b'{"k":"Seen","t":0,"number":2,"colour":"red"}', {}) == Seen(2)


@pytest.mark.parametrize(
    "line",
    [
        b'{"k":"Seen","t":0}',
        b'{"k":"Seen","t":0,"number":"two"}',
        b'{"k":"Seen","t":0,"number":true}',
        b'{"k":"Seen","t":0,"number":2,"parts":{}}',
        b'{"k":"Seen","t":0,"number":2,"parts":[3]}',
        b'{"k":"Seen","t":0,"number":2,"sizes":[]}',
        b'{"k":"Seen","t":0,"num',
        b"[" * 100_000,
    ],
)
def test_what_is_not_such_an_event_is_refused(line):
    with pytest.raises(Malformed):
        decode(Seen, line, {})


def test_a_record_leaves_out_what_cannot_be_read():
    whole = [
        b"garbage\n",
        *lines(Seen(1), Other("a")),
        b'{"k":"Seen","t":9,"number":[]}\n',
        b'{"k":"Seen","t":9,"nu',
    ]
    record = Record(whole)
    assert record.events(Seen) == (Seen(1),)
    assert record.events(Other) == (Other("a"),)
    assert len(record.malformed) == 2


def test_what_is_written_again_takes_the_place_of_what_was_told_first():
    record = Record(lines(Seen(1), Seen(2), Other("a"), Seen(1, ratio=0.5)))
    assert record.events(Seen) == (Seen(1, ratio=0.5), Seen(2))
    assert record.together(Other, Seen) == [Seen(1, ratio=0.5), Seen(2), Other("a")]


def test_what_was_written_too_late_is_left_out():
    assert Record(lines(Seen(1), Seen(2), Seen(3)), until=1.0).events(Seen) == (Seen(1), Seen(2))


def test_a_place_is_read_from_its_number():
    (seen,) = Record(lines(SITE, Seen(1, SITE))).events(Seen)
    assert seen.at == Where("/jobs/train.py", 3, "main")


def test_places_compare_by_themselves():
    assert Site("a", 1, "f", 0) != Site("a", 1, "f", 0)
    assert len({SITE, SITE}) == 1

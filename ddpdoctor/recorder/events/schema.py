"""How events are written down: a line of JSON each, with the fields of its class by name."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from json import JSONEncoder, encoder
from typing import Any, ClassVar

from ..where import Site

SCHEMA = 2
"""Of the records; a reader reads its own version only."""


class Event:
    """Something that the recorder saw. A kind of event is a ``@dataclass(slots=True)`` of this.

    Its kind in the record is the name of its class. It is not frozen, since making one that is takes three times as
    long, in the user's training step; nobody changes one that was read.
    """

    __slots__ = ()
    KEY: ClassVar[str] = ""
    """The field by which it is known again: written once more, what was told first is replaced by what is told last."""


def encode(event: Event | Site, written: float) -> str:
    """The line of an event, without its newline. What has its default is left out. A field may hold plain values,
    places, and dataclasses, in lists, tuples and mappings; ``written`` is in seconds on CLOCK_MONOTONIC."""
    kind = type(event)
    plain = {"k": kind.__name__, "t": written}
    (_fillers.get(kind) or _filler(kind))(event, plain)
    return _to_json(plain)


_Filler = Callable[[Any, dict[str, Any]], None]
_fillers: dict[type, _Filler] = {}


def _filler(kind: type) -> _Filler:
    """A function that puts the fields of such an object into a dictionary; compiled, as dataclasses' own are."""
    lines = ["def fill(event, plain):"]
    defaults: dict[str, Any] = {}
    for field in fields(kind):
        if field.default_factory is not MISSING:
            condition = "if value:"
        elif field.default is MISSING:
            condition = "if True:"
        else:
            defaults[f"default_{field.name}"] = field.default
            condition = f"if value is not default_{field.name}:"
        lines += [f" value = event.{field.name}", f" {condition} plain[{field.name!r}] = value"]
    exec("\n".join(lines), defaults)
    filler: _Filler = defaults["fill"]
    _fillers[kind] = filler
    return filler


def _plain(value: Any) -> Any:
    """What stands in the record for a value that JSON does not know."""
    if isinstance(value, Site):
        return value.number
    if not is_dataclass(value):
        return str(value)
    kind, plain = type(value), dict[str, Any]()
    (_fillers.get(kind) or _filler(kind))(value, plain)
    return plain


def _json() -> Callable[[Any], str]:
    # Made once: JSONEncoder.encode makes one for each call, which takes longer than to encode a short event.
    make: Any = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return JSONEncoder(separators=(",", ":"), default=_plain).encode
    chunks = make(None, _plain, encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    return lambda value: "".join(chunks(value, 0))


_to_json = _json()

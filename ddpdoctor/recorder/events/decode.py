"""How events are read: by the fields of their class and their types. Not used in the process that is recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..where import Where
from .schema import Event

E = TypeVar("E", bound=Event)
T = TypeVar("T")
Sites = Mapping[int, Where]
"""The places of a record, by their numbers."""
_Convert = Callable[[Any, Sites], Any]
_JSON = json.JSONDecoder()
_HEAD = re.compile(rb'\{"k": ?"(\w+)", ?"t": ?(-?[\d.]+(?:e[-+]\d+)?)[,}]')
"""With spaces where somebody wrote it anew."""


class Malformed(ValueError):
    """A line is not what the recorder writes of such an event."""


def head(line: bytes) -> tuple[str, float] | None:
    """The kind of a line and when it was written, by its beginning alone; None where it is no event."""
    match = _HEAD.match(line)
    return (match[1].decode(), float(match[2])) if match else None


def is_of(line: bytes, *kinds: type) -> bool:
    """Whether a line is an event of one of these kinds."""
    return line.startswith(_beginnings(kinds))


@cache
def _beginnings(kinds: tuple[type, ...]) -> tuple[bytes, ...]:
    return tuple(f'{{"k":"{kind.__name__}",'.encode() for kind in kinds)


def decode(kind: type[E], line: bytes, sites: Sites) -> E:
    """The event that a line tells, without fields that this version does not know. Raises Malformed where the line is
    cut short, lacks a field, or a field has another type."""
    try:
        plain = _JSON.decode(line.decode("utf-8", "surrogatepass"))  # json.loads looks for the encoding first
    except (ValueError, RecursionError):
        raise Malformed("a line of a record is no JSON") from None
    return from_plain(kind, plain, sites)


def from_plain(kind: type[T], plain: Any, sites: Sites = MappingProxyType({})) -> T:
    """A dataclass from values of JSON, by its fields' types. Raises Malformed where one lacks or has another type."""
    made: T = _made(kind, plain, sites)
    return made


def _made(kind: Any, plain: Any, sites: Sites) -> Any:
    known, as_they_are = _converters(kind)
    if not isinstance(plain, dict):
        raise Malformed(f"{kind.__name__}: {type(plain).__name__} in place of its fields")
    try:
        return kind(
            **{
                # A call for each number and text of ten thousand ranks takes as long as reading them.
                name: value if type(value) in as_they_are[name] else known[name](value, sites)
                for name, value in plain.items()
                if name in known
            }
        )
    except TypeError as wrong:
        raise Malformed(str(wrong)) from None


@cache
def _converters(kind: Any) -> tuple[dict[str, _Convert], dict[str, frozenset[type]]]:
    """What makes each field of its value in JSON, and the types that values have which are the field's as they are."""
    types = get_type_hints(kind)
    converters = {field.name: _converter(types[field.name]) for field in fields(kind)}
    return converters, {name: _as_they_are(types[name]) for name in converters}


def _as_they_are(hint: Any) -> frozenset[type]:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return frozenset(part for part in parts if part in (str, int, float, bool, NoneType))


def _converter(hint: Any) -> _Convert:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional(arguments)
    if origin is tuple:
        return _list_of(arguments[0])
    if origin is not None:
        return _mapping_of(arguments[1])
    if is_dataclass(hint):
        return _place if hint is Where else lambda value, sites: _made(hint, value, sites)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member_of(hint)
    return (lambda value, _: value) if hint is Any else _scalar(hint)


def _member_of(kind: type[Enum]) -> _Convert:
    def member(value: Any, _: Sites) -> Enum:
        try:
            return kind(value)
        except ValueError as wrong:
            raise Malformed(str(wrong)) from None

    return member


def _optional(arguments: tuple[Any, ...]) -> _Convert:
    (inner,) = [argument for argument in arguments if argument is not NoneType]
    convert = _converter(inner)
    return lambda value, sites: None if value is None else convert(value, sites)


def _list_of(hint: Any) -> _Convert:
    convert, as_they_are = _converter(hint), _as_they_are(hint)

    def all_of(value: Any, sites: Sites) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Malformed(f"{type(value).__name__} in place of a list")
        if as_they_are.issuperset(map(type, value)):
            return tuple(value)
        return tuple([convert(element, sites) for element in value])

    return all_of


def _mapping_of(hint: Any) -> _Convert:
    convert, as_they_are = _converter(hint), _as_they_are(hint)

    def all_of(value: Any, sites: Sites) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Malformed(f"{type(value).__name__} in place of a mapping")
        if as_they_are.issuperset(map(type, value.values())):
            return value
        return {key: convert(element, sites) for key, element in value.items()}

    return all_of


def _place(value: Any, sites: Sites) -> Where | None:
    if isinstance(value, int):
        return sites.get(value)
    made: Where = _made(Where, value, sites)
    return made


def _scalar(kind: type) -> _Convert:
    wanted = (int, float) if kind is float else kind

    def checked(value: Any, _: Sites) -> Any:
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
            raise Malformed(f"{type(value).__name__} in place of {kind.__name__}")
        return value

    return checked

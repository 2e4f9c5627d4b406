"""HTML that cannot be wrong: every text and attribute is escaped unless it was made here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeAlias, TypeVar

_EMPTY = frozenset({"br", "meta"})
"""Elements of HTML that have no end."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


_T = TypeVar("_T")
Child: TypeAlias = "str | Iterable[str] | None"


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """An element.

    Args:
        children: text, which is escaped; markup; lists of them; None for nothing.
        attributes: ``class_`` is ``class``, ``aria_label`` is ``aria-label``; left out where None or False, and
            without a value where True.
    """
    given = "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = together(*children)
    return Markup(
        f"<{name}{given}>" if name in _EMPTY and not inside else f"<{name}{given}>{inside}</{name}>"
    )


def together(*children: Child) -> Markup:
    """Texts and markup one after the other."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(escape(child))
        elif child is not None:
            parts.append(together(*child))
    return Markup("".join(parts))


def fitting(items: Sequence[_T], draw: Callable[[_T], Markup], room: int, left_out: str) -> list[Markup]:
    """The first of some items, as far as there is room; then a note where there are more.

    Args:
        room: characters.
        left_out: what is said of the others, behind their number.
    """
    fit: list[Markup] = []
    for item in items:
        markup = draw(item)
        room -= len(markup)
        if room < 0:
            return [*fit, tag("p", f"{len(items) - len(fit)} {left_out}", class_="note")]
        fit.append(markup)
    return fit


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'

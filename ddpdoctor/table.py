"""Tables of plain text, the same for runs and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

ABSENT = "-"
"""What stands in a cell where there is no value."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Columns as wide as their content: the first to the left, as a name is, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "".join(f"{indent}{_line(line, widths)}\n" for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *others)).rstrip()


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many digits that count, thousands with commas: ``1,204``, ``2.31``, ``0.0012``."""
    if value is None:
        return ABSENT
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:#.{digits}g}".rstrip(".")


def share(value: float | None) -> str:
    """A share in per cent: ``87 %``."""
    return ABSENT if value is None else f"{value * 100:.0f} %"

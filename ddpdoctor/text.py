"""Small ways of putting values into sentences and tables, the same in every check and every format."""

import re
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from ddpdoctor.model import Evidence, Where
from ddpdoctor.secret import MASK, has_secret_shape, is_secret, mask_command, mask_shapes

_T = TypeVar("_T")

_LONGEST = 120
LONGEST_COMMAND = 2000
"""Of a command line that may be copied to be run again."""
_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def fold_ranks(ranks: Iterable[int]) -> str:
    """Ranks as ranges: ``[0, 1, 3, 4, 5]`` is ``0-1, 3-5``."""
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def ranks_phrase(ranks: Iterable[int], otherwise: str = "no rank") -> str:
    """``rank 2`` or ``ranks 0-1, 3``; ``otherwise`` where there is none."""
    if not (known := sorted(set(ranks))):
        return otherwise
    return f"rank{'' if len(known) == 1 else 's'} {fold_ranks(known)}"


def ranks_do(ranks: Iterable[int], verb: str) -> str:
    """Ranks and what they do: ``rank 2 reads``, ``ranks 0-1, 3 read``."""
    known = set(ranks)
    return f"{ranks_phrase(known)} {verb}{'s' if len(known) == 1 else ''}"


def size(count: float) -> str:
    """Bytes in binary units: ``64 MiB``, ``1.5 GiB``."""
    for unit in _UNITS:
        if abs(count) < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if count >= 10 or count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes every size")


def duration(seconds: float | None) -> str:
    """Seconds in the unit that reads best: ``12 us``, ``3.4 ms``, ``2.1 s``."""
    if seconds is None:
        return ABSENT
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def age(seconds: float) -> str:
    """Of a process or a file: ``90 s``, ``5 min``, ``3 h``, ``9 days``."""
    for unit, long, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds / long:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def plural(count: int, noun: str) -> str:
    """``1 rank``, ``2 ranks``, ``2 processes``, ``2 batches``."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "tch")) else "s"
    return f"{count} {noun}{ending}"


def signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals have no name."""
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def differ(part: int, whole: int, noun: str) -> str:
    """``1 of 2 buffers differs``, ``3 of 4 buffers differ``."""
    return f"{part} of {plural(whole, noun)} {'differs' if part == 1 else 'differ'}"


def uncoloured(text: str) -> str:
    """The text without what tells a terminal how to show it."""
    return _CODES.sub("", text) if "\x1b" in text else text


def shorten(text: str, longest: int = _LONGEST, *, at_end: bool = False) -> str:
    """The text, cut in its middle, or at its end, where it is too long for a line."""
    if len(text) <= longest:
        return text
    half = (longest - 5) // 2
    return f"{text[: longest - 4]} ..." if at_end else f"{text[:half]} ... {text[-half:]}"


def quote_command(command: Sequence[str], longest: int = _LONGEST) -> str:
    """A command line as one would type it, on one line, cut in its middle beyond a length; secrets are masked."""
    return shorten(" ".join(shlex.join(mask_command(command)).split()), longest)


def listing(names: Sequence[str], most: int = 3) -> str:
    """The first of some names: ``a, b``, or ``a, b, c and 5 more``."""
    rest = len(names) - most
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:most])} and {rest} more"


def did_you_mean(wanted: str, known: Iterable[str], otherwise: str) -> str:
    """``did you mean a or b?`` of the known names that are near; else another hint."""
    import difflib  # only where something was not found

    near = difflib.get_close_matches(wanted, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


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


def show_value(name: str, value: str) -> str:
    """A variable's value as a finding shows it: quoted, escaped and shortened, or ``***`` where it is secret."""
    if is_secret(name, value):
        return MASK
    masked = MASK if has_secret_shape(value) and "://" not in value else mask_shapes(value)
    return MASK if masked == MASK else quote(shorten(masked))


def show_variable(name: str, value: str) -> str:
    """``NAME='value'``, with the value as :func:`show_value` shows it."""
    return f"{name}={show_value(name, value)}"


def quote(text: str) -> str:
    r"""Foreign text as ``repr`` writes it: in quotes, printable Unicode as it is, ``\x1b`` and its like escaped."""
    return repr(str(text))


def escape(text: str, keep: str = "") -> str:
    """The text with every character escaped that moves a cursor, reorders text or cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def odd_ranks(values: Mapping[int, Hashable]) -> tuple[int, ...]:
    """The ranks whose value is not the one that most ranks have; rank 0's stands for all where none has a majority."""
    (most, count), *_ = Counter(values.values()).most_common()
    usual = most if count > len(values) / 2 else values[min(values)]
    return tuple(rank for rank, value in values.items() if value != usual)


def by_state(
    states: Mapping[int, _T],
    text: Callable[[_T], str] = str,
    places: Mapping[int, Where | None] = MappingProxyType({}),
) -> tuple[Evidence, ...]:
    """What is so on each rank, equal states once, as ``text`` says it; ``places`` are where ranks are in it."""
    ranks: dict[str, list[int]] = {}
    for rank, state in states.items():
        ranks.setdefault(text(state), []).append(rank)
    return tuple(Evidence(shown, tuple(those), places.get(those[0])) for shown, those in ranks.items())

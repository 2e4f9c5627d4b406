"""What the measurement of collectives says about their answers; a wrong one explains most else that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddpdoctor.check import NotMeasured
from ddpdoctor.group.group_record import GroupRecord


@dataclass(frozen=True)
class Wrong:
    """One operation that gave some ranks a wrong answer."""

    op: str
    dtype: str
    bytes: int
    elements: dict[int, tuple[int, Any, Any]]
    """By rank: the first wrong element, what it should be, what it is."""


def wrong_answers(ranks: GroupRecord) -> list[Wrong]:
    """The operations that were wrong on any rank, in the order in which they were tried, the simplest first."""
    rows = {rank: value["rows"] for rank, value in sorted(ranks.values("collectives").items())}
    results = []
    for position, row in enumerate(next(iter(rows.values()), [])):
        wrong = {rank: row[position].get("wrong") for rank, row in rows.items()}
        elements = {rank: (w["index"], w["expected"], w["got"]) for rank, w in wrong.items() if w}
        if elements:
            results.append(Wrong(row["op"], row["dtype"], row["bytes"], elements))
    return results


def require_right_answers(ranks: GroupRecord) -> None:
    """For a check whose problem wrong answers would imitate: one cause, one finding.

    Raises:
        NotMeasured: a collective gave a wrong answer. Where collectives were not measured, nothing is known.
    """
    if "collectives" not in ranks.wanted:
        return
    wrong = wrong_answers(ranks)
    if wrong:
        raise NotMeasured(f"{wrong[0].op} gives a wrong answer")


def replicas_differ(ranks: GroupRecord) -> bool:
    """Whether DDP itself was seen to leave replicas different."""
    if "weights" not in ranks.wanted:
        return False
    return any(value["difference"] for value in ranks.values("weights").values())

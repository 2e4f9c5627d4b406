"""The tables in which torch.distributed.debug's server prints the flight recorders of all ranks, ``fr_trace_*.txt``.

It has matched the calls of the ranks, so a row is a collective, with the members of its group and those that did not
join. From the rows each rank's calls follow, as its own dump would have them, but for sends and receives.
"""

import ast
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddpdoctor.blame.hang_snapshot import Dump
from ddpdoctor.hang.flight.reduce import MOST_RANKS, reduce

BEGINS = r"=== (?:TorchComms )?FR Trace"
_SECTION = re.compile(rf"^{BEGINS}.*$", re.MULTILINE)
_FILLED = 13
"""The first columns of a row, of which none is ever empty."""
_MISSING = re.compile(r"[\d ]*(\{[\d, ]+\})")
_DIFFERS = re.compile(
    r"\b(\d{1,7}): Collective\(.*?collective_name='([^']*)', input_sizes=(\[.*?\]), output_sizes=.*?"
    r"collective_state='(\w+)'"
)


def read_tables(text: str, file: Path) -> dict[int, Dump]:
    """The dump of each rank; of several recorders that of the last which has calls, as NCCL's comes last. Raises
    Refused, ValueError or RecursionError where a row is not what torch writes."""
    sections = [_by_rank(section) for section in _SECTION.split(text)[1:]]
    by_rank = next((ranks for ranks in reversed(sections) if any(ranks.values())), (sections or [{}])[0])
    return {rank: reduce(_as_dump(calls), rank, file) for rank, calls in by_rank.items()}


def _by_rank(section: str) -> dict[int, list[dict[str, Any]]]:
    members, _, rows = section.partition("--- NCCL Calls ---")[0].partition("--- Collectives ---")
    found = re.findall(r"^ *\S+  +(\d{1,7})$", members.partition("--- Memberships ---")[2], re.MULTILINE)
    by_rank: dict[int, list[dict[str, Any]]] = {int(rank): [] for rank in found if int(rank) < MOST_RANKS}
    for row in rows.splitlines():
        for rank, call in _calls(re.split(" {2,}", row.strip(), maxsplit=_FILLED)):
            by_rank.setdefault(rank, []).append(call)
    return by_rank


def _calls(cells: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    if len(cells) < _FILLED or not cells[0].isdecimal():
        return
    _, group, _, number, _, _, title, operation, sizes, _, of_group, state, frames, *rest = cells
    members, missing = _ranks(of_group), _MISSING.match("".join(rest))
    joined = [rank for rank in members if rank not in (_ranks(missing[1]) if missing else ())]
    differing = {int(rank): called for rank, *called in _DIFFERS.findall("".join(rest))}
    of_call = group, title.partition(":")[2] or "undefined"
    call: dict[str, Any] = {"process_group": of_call, "ranks": str(members), "collective_seq_id": int(number)}
    call |= {"input_dtypes": [], "frames": []}
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        call["frames"] = ast.literal_eval(frames)
    for rank in joined:
        name, shapes, came_to = differing.get(rank, [operation, sizes, state])
        own = {"profiling_name": name, "input_sizes": json.loads(shapes), "state": came_to}
        # Gloo's recorder marks no other end, and that is not shown.
        own["retired"] = joined == members and not differing and came_to == "scheduled"
        yield rank, call | own


def _ranks(text: str) -> list[int]:
    return sorted(int(rank) for rank in re.findall(r"\d{1,7}", text))


def _as_dump(calls: list[dict[str, Any]]) -> dict[str, Any]:
    config = {(own := call["process_group"])[0]: {"desc": own[1], "ranks": call["ranks"]} for call in calls}
    return {"entries": calls, "pg_config": config}

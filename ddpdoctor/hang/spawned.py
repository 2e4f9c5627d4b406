"""The ranks of processes whose environment does not tell them: children of ``mp.spawn``, above all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddpdoctor.hang.stacks import StacksUnavailable, dump, main_thread

_WORKER = "_worker_loop"
"""The function in which DataLoader workers spend their lives."""
_SPAWN = "torch/multiprocessing/spawn.py"


def ranks_by_arguments(pids: Iterable[int]) -> dict[int, int | None]:
    """The ranks that the functions of these processes were given; without those that are DataLoader workers.

    None where no function was given a rank, or py-spy may not look.
    """
    ranks = {}
    for pid in pids:
        try:
            frames = main_thread(dump(pid, "--locals"), pid)
        except StacksUnavailable:
            frames = ()
        if not any(frame["name"] == _WORKER for frame in frames):
            ranks[pid] = rank_of(frames)
    return ranks


def rank_of(frames: Sequence[Mapping[str, Any]]) -> int | None:
    """The rank in a stack, innermost frame first: an argument of that name, or what ``mp.spawn`` counted."""
    by_name = [value for frame in reversed(frames) if (value := _argument(frame, "rank")) is not None]
    counted = [_argument(frame, "i") for frame in frames if str(frame["filename"]).endswith(_SPAWN)]
    return next((value for value in (*by_name, *counted) if value is not None), None)


def _argument(frame: Mapping[str, Any], name: str) -> int | None:
    for variable in frame.get("locals") or ():
        text = str(variable["repr"])
        if variable["name"] == name and variable["arg"] and text.isdecimal() and len(text) < 10:
            return int(text)
    return None

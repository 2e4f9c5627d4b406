"""Stacks that others wrote as text: py-spy dump, faulthandler, and the dumps of torch.distributed.debug's server.

That server writes ``stacks_<time>.txt`` (of faulthandler) and ``pyspy_dump_<time>.txt``, with a header before each
rank. Of files without such headers, the name tells the rank.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ddpdoctor.blame.frames import Frame, is_of_recorder, parse_faulthandler
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.files import written_at
from ddpdoctor.hang.flight.reading import rank_of
from ddpdoctor.text import shorten

_LARGEST = 64 << 20
_LOOKED_AT = 4096
_RANK = re.compile(r"^=== Rank (?P<rank>\d{1,7}): (?P<address>\S*) ===$", re.MULTILINE)
_PROCESS = re.compile(r"^Process (?P<pid>\d+): (?P<command>.*)$", re.MULTILINE)
_THREAD = re.compile(r'^Thread (?P<id>\w+) \((?P<doing>[a-z+]+)\)(?:: "(?P<name>.*)")?$', re.MULTILINE)
_FRAME = re.compile(r"^ {4}(?P<function>\S.*) \((?P<file>[^()]+):(?P<line>\d+)\)$", re.MULTILINE)
_BEGINS = re.compile(
    r"\s*(?:PARTIAL DATA: |=== Rank \d+: |Process \d+: .*\nPython v"
    r"|(?:Current t|T)hread 0x\w+ .*\(most recent call first\):)"
)


def looks_like_stacks(file: Path) -> bool:
    """Whether a file begins as these do."""
    try:
        with file.open("rb") as opened:
            return bool(_BEGINS.match(opened.read(_LOOKED_AT).decode(errors="replace")))
    except OSError:
        return False


def read_stacks(files: Sequence[Path]) -> HangSnapshot:
    """The processes that the newest file shows of each rank; an older one tells whether they stand."""
    seen: dict[tuple[int | None, str, int], SampledProcess] = {}
    unseen: dict[int, str] = {}
    for file in sorted(files, key=lambda file: (written_at(file), file.name)):
        for process in _processes(file):
            if process.unseen and process.rank is not None:
                unseen[process.rank] = process.unseen
                continue
            key = process.rank, process.role.value, 0 if process.role is ProcessRole.RANK else process.pid
            before = seen.get(key)
            again = before.stack if before and before.stack else process.stack
            seen[key] = replace(process, again=again)
    missing = [f"rank {rank}: {why}" for rank, why in sorted(unseen.items()) if (rank, "rank", 0) not in seen]
    ranks = {rank for rank, *_ in seen if rank is not None} | set(unseen)
    return HangSnapshot(
        tuple(seen.values()), world_size=max(ranks, default=-1) + 1 or None, unseen=tuple(missing)
    )


def _processes(file: Path) -> Iterator[SampledProcess]:
    with file.open(encoding="utf-8", errors="replace") as opened:
        text = opened.read(_LARGEST)
    parts = _parts(_RANK, text)
    for header, own in parts:
        host = header["address"].rpartition("//")[2].rpartition(":")[0]
        yield from _of_rank(own, int(header["rank"]), host)
    if not parts:
        yield from _of_rank(text, rank_of(file), "")


def _parts(begins: re.Pattern[str], text: str) -> list[tuple[re.Match[str], str]]:
    """What follows each match, until the next."""
    found = list(begins.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [(match, text[match.end() : end]) for match, end in zip(found, ends, strict=False)]


def _of_rank(text: str, rank: int | None, host: str) -> Iterator[SampledProcess]:
    blocks = _parts(_PROCESS, text)
    for number, (block, own) in enumerate(blocks):
        stack, doing = _by_py_spy(own, block["pid"])
        role = ProcessRole.WORKER if number else ProcessRole.RANK
        pid, command = int(block["pid"]), shorten(block["command"])
        yield SampledProcess(pid, rank, role, host, command, doing=doing, stack=stack)
    if blocks or rank is None:
        return
    stack = parse_faulthandler(text)
    why = "" if stack else f"the debug server got no stack of it: {shorten(text.strip() or 'nothing')}"
    yield SampledProcess(0, rank, host=host, doing=Doing.WAITS, stack=stack, unseen=why)


def _by_py_spy(text: str, pid: str) -> tuple[tuple[Frame, ...], Doing]:
    """The main thread's stack, outermost first, and whether it uses a CPU."""
    for thread, own in _parts(_THREAD, text):
        if thread["name"] == "MainThread" or thread["id"] == pid:
            matches = _FRAME.finditer(own)
            frames = [Frame(it["function"], _in_full(it["file"]), int(it["line"])) for it in matches]
            doing = Doing.WAITS if thread["doing"] == "idle" else Doing.COMPUTES
            return tuple(frame for frame in reversed(frames) if not is_of_recorder(frame.file)), doing
    return (), Doing.UNKNOWN


def _in_full(file: str) -> str:
    """py-spy leaves out where a file of Python's own lies."""
    module = file.partition("/")[0].removesuffix(".py")
    return f"lib/python3/{file}" if module in sys.stdlib_module_names else file

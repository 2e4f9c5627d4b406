"""What NCCL decided in a job, as a table: versions, interfaces, transports between which ranks, rings, variables."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from ddpdoctor.logs import line_prefixes, nccl_output
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.nccl_output import NcclFacts
from ddpdoctor.logs.read import Stream
from ddpdoctor.model import Evidence
from ddpdoctor.redact import escape

MOST_LINES = 4000
"""Different lines kept of one process; a job that starts many groups repeats itself."""
MOST_PROCESSES = 65_536
_PAIRS_SHOWN = 6
_PROCESS = re.compile(r"(\S+):(\d+):\d+ \[(-?\d+)\] (?:\S+ )?(?:\(\S*\) )?NCCL ")
_RANK = re.compile(r"\brank (\d+) nranks (\d+)")
_LONGEST_LINE = 4096
_ADAPTER = re.compile(r"\bhca (\w+)")


@dataclass(frozen=True)
class JobFacts:
    """What the processes of a job said, by rank."""

    by_rank: Mapping[int, NcclFacts]
    unnumbered: bool = False
    """Whether no line told the ranks, so that the processes are numbered in the order of their appearance."""


def read_facts(streams: Iterable[Stream]) -> JobFacts:
    """Every NCCL line of the streams, by process."""
    lines_of: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    version = ""
    for stream in streams:
        for line in _nccl_lines(stream.chunks):
            if (match := _PROCESS.search(line)) is None:
                version = version or (line if "NCCL version" in line else "")
            elif (match[1], match[2]) in lines_of or len(lines_of) < MOST_PROCESSES:
                lines = lines_of[match[1], match[2]]
                if len(lines) < MOST_LINES:
                    lines[line[match.start() :]] = None
    return _by_rank({process: list(lines) for process, lines in lines_of.items()}, version)


def _nccl_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chain(chunks, [b"\n"]):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[:_LONGEST_LINE]
        for raw in whole:
            if b"NCCL" in raw:
                yield line_prefixes.strip(raw[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")).text


def _by_rank(lines_of: Mapping[tuple[str, str], list[str]], version: str) -> JobFacts:
    ranks = {process: rank for process, lines in lines_of.items() if (rank := _rank(lines)) is not None}
    unnumbered = len(set(ranks.values())) < len(lines_of)
    if unnumbered:
        ranks = {process: number for number, process in enumerate(lines_of)}
    facts = {
        rank: nccl_output.parse("\n".join((version, *lines_of[process])))
        for process, rank in sorted(ranks.items(), key=lambda pair: pair[1])
    }
    return JobFacts(facts, unnumbered)


def _rank(lines: Iterable[str]) -> int | None:
    """The rank in the largest group, which is mostly the whole job."""
    matches = [match for line in lines if (match := _RANK.search(line))]
    return int(max(matches, key=lambda match: int(match[2]))[1]) if matches else None


def adapter_of(log: Log, failed: str) -> str:
    """`` of adapter mlx5_3, one of 4``, where all lines with this expression name one InfiniBand adapter."""
    names = {match[1] for line in log.find(failed) if (match := _ADAPTER.search(line.text))}
    if len(names) != 1:
        return ""
    used = {name.partition(":")[0] for facts in log.nccl.values() for name, _ in facts.adapters}
    return f" of adapter {escape(*names)}" + (f", one of {len(used)}," if len(used) > 1 else "")


def table(facts: JobFacts) -> tuple[Evidence, ...]:
    """What was decided, equal ranks together; between which ranks each transport runs."""
    return (*nccl_output.as_evidence(facts.by_rank), *(Evidence(text) for text in _transports(facts)))


def _links(facts: JobFacts) -> dict[str, set[tuple[int, int]]]:
    pairs: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for facts_of_rank in facts.by_rank.values():
        for link in facts_of_rank.links:
            pairs[link.transport].add((link.sender, link.receiver))
    return pairs


def _transports(facts: JobFacts) -> Iterator[str]:
    for transport, pairs in sorted(_links(facts).items()):
        shown = ", ".join(f"{a} -> {b}" for a, b in sorted(pairs)[:_PAIRS_SHOWN])
        more = len(pairs) - _PAIRS_SHOWN
        yield f"over {transport}: {shown}" + (f" and {more} more" if more > 0 else "")

"""What NCCL reported in a job's output, as figures: which transport runs between which ranks, and over what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from ddpdoctor.figures import Figure, Row, Section, Strips, Table, Tone, cells, chosen, of_many
from ddpdoctor.logs.nccl_facts import JobFacts
from ddpdoctor.logs.nccl_output import Link, as_evidence
from ddpdoctor.text import fold_ranks

_TRANSPORTS = (
    ("P2P", Tone.WORK, "P2P: directly between GPUs"),
    ("SHM", Tone.FILES, "SHM: through shared memory"),
    ("NET/Socket", Tone.WAIT, "NET/Socket: TCP"),
    ("NET", Tone.COLLECTIVE, "NET: InfiniBand, RoCE or a plugin"),
)
_MOST_FACTS = 60


def sections(facts: JobFacts) -> Iterator[Section]:
    """The section on the machine, where NCCL told of it."""
    links = [link for of_rank in facts.by_rank.values() for link in of_rank.links]
    figures: list[Figure] = [*_transports(links), *_facts(facts)]
    if figures:
        yield Section("Machine", figures=tuple(figures))


def _transports(links: Iterable[Link]) -> Iterator[Strips]:
    """Senders by receivers; of two transports the slower one, which is last in the list."""
    used: dict[tuple[int, int], int] = {}
    for link in links:
        kind = next((n for n, (begin, _, _) in enumerate(_TRANSPORTS) if link.via.startswith(begin)), None)
        if kind is not None:
            pair = link.sender, link.receiver
            used[pair] = max(kind, used.get(pair, kind))
    known = sorted({rank for pair in used for rank in pair})
    if len(known) < 2:
        return
    ranks = chosen(known)
    yield Strips(
        "Transport by pair of ranks",
        tuple(Row(f"from rank {rank}", cells(ranks, partial(_cell, used, rank))) for rank in ranks),
        end=float(len(ranks)),
        columns=tuple(f"{rank}" for rank in ranks),
        legend=tuple((tone, text) for n, (_, tone, text) in enumerate(_TRANSPORTS) if n in used.values()),
        note=f"Columns are the ranks that receive. {of_many(ranks, known)}".strip(),
    )


def _cell(used: Mapping[tuple[int, int], int], rank: int, other: int) -> tuple[Tone, str] | None:
    if (kind := used.get((rank, other))) is None:
        return None
    _, tone, text = _TRANSPORTS[kind]
    return tone, f"rank {rank} to {other}, {text}"


def _facts(facts: JobFacts) -> Iterator[Table]:
    rows = as_evidence(facts.by_rank)[:_MOST_FACTS]
    if rows:
        note = (
            "No line names its rank: processes are numbered in order of appearance."
            if facts.unnumbered
            else ""
        )
        cells = tuple((fold_ranks(row.ranks), row.text) for row in rows)
        yield Table("What NCCL reported", ("ranks", "seen"), cells, note)

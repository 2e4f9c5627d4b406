"""What NCCL says of itself under NCCL_DEBUG=INFO: one rank's text as facts, several ranks' facts as evidence."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ddpdoctor.model import Evidence
from ddpdoctor.redact import escape, show_value
from ddpdoctor.text import plural, shorten

MOST_WARNINGS = 50
"""Different warnings kept of one rank: a failing network repeats itself without end."""

_LINE = re.compile(
    r"\S+:\d+:\d+ \[-?\d+\] (?:(?P<source>\S+:\d+) (?:\(\S*\) )?)?NCCL (?P<level>INFO|WARN) (?P<text>.*)"
)
_VERSION = re.compile(r"NCCL version (\S+)")
_DRIVER = re.compile(r"cudaDriverVersion (\d+)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using \[?\d*\]?([^\s:]+):([^\s<]+)<")
_SOCKETS = re.compile(r"NET/Socket ?: Using (.+)")
_SOCKET = re.compile(r"\[\d+\]([^\s:]+):([^\s<]+)<")
_ADAPTERS = re.compile(r"NET/IB ?: Using (.+?)(?:;|$)")
_ADAPTER = re.compile(r"\[\d+\](\S+?)/(\S+)")
_NETWORK = re.compile(r"Using network (.+)")
_LINK = re.compile(r"Channel (\d+)(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[\w+\] )?via (\S+)")
_RING = re.compile(r"Channel \d+/\d+ :((?:\s+\d+)+)\s*$")
_CHANNELS = re.compile(r"(\d+) coll channels")
_VARIABLE = re.compile(r"(NCCL_\w+) set by environment to (.*)")


@dataclass(frozen=True)
class Link:
    """One connection: a channel between two ranks, and what carries it."""

    channel: int
    sender: int
    receiver: int
    via: str
    """As NCCL writes it: ``P2P/CUMEM``, ``SHM/direct/direct``, ``NET/IB/0/GDRDMA``, ``NET/Socket/0``."""

    @property
    def transport(self) -> str:
        """``via`` without device numbers and repetitions: ``P2P/CUMEM``, ``SHM/direct``, ``NET/IB/GDRDMA``."""
        parts = (part for part in self.via.split("/") if not re.match(r"\d", part))
        return "/".join(dict.fromkeys(parts))


@dataclass(frozen=True)
class NcclFacts:
    """What one rank's output shows. What it does not show is empty or None."""

    version: str = ""
    cuda_driver: tuple[int, int] | None = None
    bootstrap: tuple[str, str] | None = None
    """The interface over which the ranks first meet, and its address."""
    sockets: tuple[tuple[str, str], ...] = ()
    """Interfaces and addresses for data over sockets."""
    adapters: tuple[tuple[str, str], ...] = ()
    """InfiniBand devices with port, and their link layer: ``("mlx5_0:1", "IB")``."""
    network: str = ""
    """The network for data between nodes: ``IB``, ``Socket``, or a plugin's name."""
    links: tuple[Link, ...] = ()
    channels: int | None = None
    """Channels for collectives, of the communicator that has most."""
    rings: tuple[tuple[int, ...], ...] = ()
    """The order of ranks in each ring; rank 0 alone writes it."""
    warnings: tuple[tuple[str, str], ...] = ()
    """WARN lines, each behind its place in NCCL's source, such as ``misc/socket.cc:483``; empty where it has none."""
    variables: tuple[tuple[str, str], ...] = ()
    """Variables that NCCL found set, with their values."""


def parse(text: str) -> NcclFacts:
    """The facts in one rank's NCCL_DEBUG output; lines that are not NCCL's are passed over."""
    messages = list(_messages(text))
    version = _VERSION.search(text)
    infos = [message for _, level, message in messages if level == "INFO"]
    drivers = [int(driver) for driver in _matches(_DRIVER, infos)]
    return NcclFacts(
        version=version.group(1) if version else "",
        cuda_driver=(drivers[0] // 1000, drivers[0] % 1000 // 10) if drivers else None,
        bootstrap=next(_matches(_BOOTSTRAP, infos), None),
        sockets=_listed(_SOCKETS, _SOCKET, infos),
        adapters=_listed(_ADAPTERS, _ADAPTER, infos),
        network=next((network.strip() for network in _matches(_NETWORK, infos)), ""),
        links=tuple(
            dict.fromkeys(Link(int(c), int(a), int(b), via) for c, a, b, via in _matches(_LINK, infos))
        ),
        channels=max((int(count) for count in _matches(_CHANNELS, infos)), default=None),
        rings=tuple(tuple(int(rank) for rank in ring.split()) for ring in _matches(_RING, infos)),
        warnings=tuple(dict.fromkeys((source, text) for source, level, text in messages if level == "WARN"))[
            :MOST_WARNINGS
        ],
        variables=tuple(dict((name, _value(value)) for name, value in _matches(_VARIABLE, infos)).items()),
    )


def _messages(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.splitlines():
        if match := _LINE.search(line):
            yield match["source"] or "", match["level"], match["text"].strip()


def _matches(pattern: re.Pattern[str], messages: Iterable[str]) -> Iterator[Any]:
    """The pattern's group, or its groups, for each message that has it."""
    for message in messages:
        if match := pattern.search(message):
            yield match.group(1) if pattern.groups == 1 else match.groups()


def _listed(
    line: re.Pattern[str], item: re.Pattern[str], messages: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """The items of the first line of a kind."""
    return tuple(item.findall(next(_matches(line, messages), "")))


def _value(text: str) -> str:
    """A variable's value; NCCL ends a number with a full stop, and a text without one."""
    return text[:-1] if re.fullmatch(r"-?\d+\.", text) else text


def as_evidence(facts_by_rank: Mapping[int, NcclFacts]) -> tuple[Evidence, ...]:
    """The facts as lines for a report: ranks that say the same share a line."""
    ranks_by_line: dict[str, list[int]] = {}
    for rank, facts in sorted(facts_by_rank.items()):
        for line in _lines(facts):
            ranks_by_line.setdefault(line, []).append(rank)
    return tuple(Evidence(line, tuple(ranks)) for line, ranks in ranks_by_line.items())


def _lines(facts: NcclFacts) -> Iterator[str]:
    if facts.version:
        yield f"NCCL {facts.version}" + (
            ", driver for CUDA {}.{}".format(*facts.cuda_driver) if facts.cuda_driver else ""
        )
    if facts.bootstrap:
        yield "ranks meet over {} ({})".format(*facts.bootstrap)
    if facts.network:
        yield f"network {escape(facts.network)}: {_devices(facts)}"
    if facts.channels is not None or facts.links:
        yield _transports(facts)
    for ring in dict.fromkeys(facts.rings):
        yield shorten(f"ring {' '.join(map(str, ring))}")
    for name, value in facts.variables:
        yield f"{name}={show_value(name, value)}"
    for source, text in facts.warnings:
        yield f"WARN {source + ': ' if source else ''}{escape(text)}"


def _devices(facts: NcclFacts) -> str:
    used = facts.sockets if facts.network == "Socket" or not facts.adapters else facts.adapters
    return ", ".join(name for name, _ in used) or "no device named"


def _transports(facts: NcclFacts) -> str:
    used = sorted({link.transport for link in facts.links})
    count = plural(facts.channels, "channel") if facts.channels is not None else "connected"
    return f"{count} over {' and '.join(used)}" if used else count

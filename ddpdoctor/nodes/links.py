"""Whether the hosts reach each other on ports like those of the ranks, and how fast; both directions of each pair."""

import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from ddpdoctor.nodes.channel import Message
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.nodes.meeting import Nodes
from ddpdoctor.recorder.events.decode import from_plain

CONNECT_SECONDS = 3.0
"""For an answer; a firewall that drops what comes gives none."""
NO_ANSWER = "no answer"
"""The error of a connection that nobody refused."""
NEIGHBOURS = 4
"""With how many of the others each host tries, the next in the order of ranks."""
_PINGS = 8
_BYTES = 8 << 20
_SECONDS = 0.5
"""At most, for the data of one trial."""
_CHUNK = 1 << 18
_LINKS, _START, _DONE = "links", "try links", "links tried"
_WAIT = 30.0


@dataclass(frozen=True)
class Link:
    """From one host to another."""

    source: int
    target: int
    address: str
    port: int
    error: str = ""
    """Why there is no connection; empty where there is one."""
    seconds: float = 0.0
    """For a byte there and back, the fastest of some."""
    rate: float = 0.0
    """Bytes a second; 0 where it was not measured."""


class Doorbell(socketserver.ThreadingTCPServer):
    """A port at an address here, empty for any, that answers trials: a byte comes back, more is taken and confirmed."""

    daemon_threads, block_on_close = True, False

    def __init__(self, address: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            super().__init__((address, 0), _Answer)
        except OSError:
            self.address_family = socket.AF_INET
            super().__init__(("", 0), _Answer)
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.settimeout(CONNECT_SECONDS)
        with suppress(OSError):
            while data := self.request.recv(_CHUNK):
                self.request.sendall(data[-1:])


def try_links(nodes: Nodes, tell: Callable[[str], object]) -> tuple[Link, ...]:
    """Try the connections between all hosts; each host calls it, and that of rank 0 gets what all saw."""
    tell("trying the connections between the hosts")
    here = nodes.here
    near = list(_neighbours(here.node_rank, nodes))
    links = [_latency(here.node_rank, target) for target in near]
    for turn in range(min(NEIGHBOURS, len(nodes.facts) - 1)):
        _begin_together(nodes)
        if turn < len(links) and not links[turn].error:
            links[turn] = _with_rate(links[turn])
    if not nodes.leads:
        nodes.channels[0].send(Message(_LINKS, {"links": [asdict(link) for link in links]}))
        return tuple(links)
    messages = nodes.collect(_LINKS, time.monotonic() + _WAIT).values()
    return (*links, *(from_plain(Link, plain) for it in messages for plain in it.values["links"]))


def _neighbours(node: int, nodes: Nodes) -> Iterator[NodeFacts]:
    """The next ones in the order of ranks: in each turn every host sends to one and receives from one."""
    others = len(nodes.facts)
    for step in range(1, min(NEIGHBOURS, others - 1) + 1):
        yield nodes.facts[(node + step) % others]


def _begin_together(nodes: Nodes) -> None:
    """Wait until every host has done its last trial."""
    if nodes.leads:
        nodes.collect(_DONE, time.monotonic() + _WAIT)
        nodes.announce(Message(_START))
    else:
        nodes.channels[0].send(Message(_DONE))
        nodes.channels[0].receive(_START, time.monotonic() + _WAIT)


def _latency(source: int, target: NodeFacts) -> Link:
    link = Link(source, target.node_rank, target.address, target.port)
    try:
        with _connection(target.address, target.port) as connection:
            return replace(link, seconds=min(_ping(connection) for _ in range(_PINGS)))
    except TimeoutError:
        return replace(link, error=NO_ANSWER)
    except OSError as failed:
        return replace(link, error=os.strerror(failed.errno) if failed.errno else str(failed))


def _ping(connection: socket.socket) -> float:
    began = time.perf_counter()
    connection.sendall(b"p")
    connection.recv(1)
    return time.perf_counter() - began


def _with_rate(link: Link) -> Link:
    block, sent = b"\0" * _CHUNK, 0
    try:
        with _connection(link.address, link.port) as connection:
            reader = threading.Thread(target=_drain, args=(connection,), daemon=True)
            reader.start()
            began = time.perf_counter()
            while sent < _BYTES and time.perf_counter() - began < _SECONDS:
                connection.sendall(block)
                sent += len(block)
            connection.shutdown(socket.SHUT_WR)
            reader.join(CONNECT_SECONDS)  # the other side closes when it has all
            seconds = time.perf_counter() - began
    except OSError:
        return link
    return replace(link, rate=sent / seconds)


def _drain(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(_CHUNK):
            pass


def _connection(address: str, port: int) -> socket.socket:
    connection = socket.create_connection((address, port), CONNECT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection

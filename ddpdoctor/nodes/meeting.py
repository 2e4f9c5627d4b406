"""How the commands on the hosts of a job find each other, at the address and port that the job is given.

The host of rank 0 listens on the master port before the job needs it; each of the others connects, and the connection
stays for the whole command. The port is free again when the job begins.
"""

import errno
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any

from ddpdoctor.host.known_variables import whole_number
from ddpdoctor.launch import UNNUMBERED, Launch
from ddpdoctor.nodes.channel import ENDED, Channel, Message
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.recorder.events.decode import Malformed, from_plain

_CONNECT_SECONDS = 3.0
_PAUSE = 0.2
_HELLO_SECONDS = 10.0
LAST_CALL_SECONDS = 30.0
"""After the fewest hosts of an elastic job came, for the others: as long as torchrun's rendezvous waits."""
NAME_SECONDS = 30.0
"""For the name of node 0 to resolve: that of a pod does so once the pod runs."""
RANKS = "ranks"
"""In what a node tells of itself: the ranks of its job, which the rendezvous may number."""
_HELLO, _WELCOME, _REFUSED = "hello", "welcome", "refused"
_Unnumbered = list[tuple[NodeFacts, Channel]]
"""The nodes that came without a number."""


class NotMet(Exception):
    """This host does not take part, for a reason in a clause: node 0 did not answer, refused it, or cannot listen."""


@dataclass
class Nodes:
    """The hosts of the job, as one of them sees them: the facts of all that came, in the order of their ranks;
    ``status`` is what this host tells with each sign of life."""

    here: NodeFacts
    channels: dict[int, Channel]
    """To each of the others from the host of rank 0; to that alone from the others."""
    facts: dict[int, NodeFacts] = field(default_factory=dict)
    absent: tuple[int, ...] = ()
    """The nodes that never came."""
    status: dict[str, Any] = field(default_factory=dict)
    _gone: dict[int, str] = field(default_factory=dict)
    """The nodes that were lost, and why."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def leads(self) -> bool:
        """Whether this is the host of rank 0, which judges."""
        return self.here.node_rank == 0

    def name(self, node: int) -> str:
        return self.facts[node].host

    def lost(self) -> dict[int, str]:
        """The nodes that are gone though they were there, and why; the host of rank 0 knows of all."""
        if not self.leads and 0 not in self._gone:
            lost = self.channels[0].status.get("lost", {})
            self._gone |= {int(n): str(why) for n, why in lost.items() if int(n) != self.here.node_rank}
        for node, channel in self.channels.items():
            if (why := channel.lost) and why != ENDED:
                self._gone.setdefault(node, why)
        return dict(self._gone)

    def lost_since(self) -> float | None:
        """When the first of them was last heard of, on the monotonic clock; None where none is gone."""
        now = time.monotonic()
        times = (self.channels[node].heard if node in self.channels else now for node in self.lost())
        return min(times, default=None)

    def statuses(self) -> dict[int, Mapping[str, Any]]:
        """What each of the other nodes that are left last told of itself."""
        gone = self.lost()
        known = self._last_statuses()
        return {node: s for node, s in known.items() if node not in gone and node != self.here.node_rank}

    def ranks(self, node: int) -> tuple[int, ...]:
        """The ranks that another node last told to have; none where it did not come to that."""
        return tuple(self._last_statuses().get(node, {}).get(RANKS, ()))

    def _last_statuses(self) -> dict[int, Mapping[str, Any]]:
        if self.leads:
            return {node: channel.status for node, channel in self.channels.items()}
        leader = self.channels[0].status
        others = leader.get("others", {})
        return {0: leader, **{int(node): status for node, status in others.items()}}

    def sign_of_life(self) -> dict[str, Any]:
        """What is told with each: of this host, and by that of rank 0 of the others."""
        if not self.leads:
            return dict(self.status)
        others = {node: dict(channel.status) for node, channel in self.channels.items()}
        return {**self.status, "others": others, "lost": self.lost()}

    def announce(self, message: Message) -> None:
        for channel in self.channels.values():
            channel.send(message)

    def collect(self, kind: str, deadline: float) -> dict[int, Message]:
        """A message of each of the others; of one that is lost, or does not deliver in time, none."""
        messages = {node: channel.receive(kind, deadline) for node, channel in self.channels.items()}
        return {node: message for node, message in messages.items() if message is not None}

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()


def wait_for_name(
    launch: Launch, resolves: Callable[[str], Sequence[str]], deadline: float, tell: Callable[[str], object]
) -> None:
    """Wait, until the deadline of the whole command, until the address of node 0 resolves; that it does not is told
    where the host is examined."""
    end = min(deadline, time.monotonic() + NAME_SECONDS)
    while not resolves(launch.master_addr) and time.monotonic() < end:
        tell(f"waiting for {launch.master_addr} to resolve to an address")
        time.sleep(_PAUSE)


def meet(launch: Launch, here: NodeFacts, deadline: float, tell: Callable[[str], object]) -> Nodes:
    """Wait for the others, who are told ``here`` of this host; ``tell`` is told who is waited for. Raises NotMet where
    this host cannot take part."""
    return _lead(launch, here, deadline, tell) if here.node_rank == 0 else _join(launch, here, deadline, tell)


# -- the host of rank 0 -----------------------------------------------------------------------------------


def _lead(launch: Launch, here: NodeFacts, deadline: float, tell: Callable[[str], object]) -> Nodes:
    nodes, unnumbered, enough = Nodes(here, {}, {0: here}), _Unnumbered(), False
    with _listener(launch) as listener:
        while (came := len(nodes.facts) + len(unnumbered)) < launch.nnodes:
            if not enough and came >= launch.min_nodes:
                enough, deadline = True, min(deadline, time.monotonic() + _last_call(launch))
            tell(f"waiting for {_missing(launch, nodes, unnumbered)} at port {launch.master_port}")
            if time.monotonic() > deadline:
                break
            with suppress(TimeoutError):
                _take_in(listener.accept()[0], launch, nodes, unnumbered)
    # In the order of their names, and not in that in which they came, which is another one in each run.
    unnumbered.sort(key=lambda pair: (pair[0].host, pair[0].address))
    for node, (known, channel) in zip(_free(launch, nodes), unnumbered, strict=False):
        nodes.facts[node], nodes.channels[node] = replace(known, node_rank=node), channel
    missing = _free(launch, nodes)[: max(0, launch.min_nodes - len(nodes.facts))]
    nodes.absent = tuple(missing)
    if not here.address and nodes.channels:
        nodes.here = nodes.facts[0] = replace(here, address=next(iter(nodes.channels.values())).address)
    nodes.facts = dict(sorted(nodes.facts.items()))
    # The listener is closed before anybody goes on, so that the job finds its port free.
    facts = [asdict(came) for came in nodes.facts.values()]
    for node, channel in nodes.channels.items():
        channel.send(Message(_WELCOME, {"node_rank": node, "nodes": facts, "absent": missing}))
    return nodes


def _listener(launch: Launch) -> socket.socket:
    try:
        listener = socket.create_server(("", launch.master_port), backlog=launch.nnodes)
    except OSError as failed:
        why = os.strerror(failed.errno or errno.EIO)
        raise NotMet(f"port {launch.master_port} of this host cannot be used: {why}") from None
    listener.settimeout(_PAUSE)
    return listener


def _last_call(launch: Launch) -> float:
    """Seconds, as torchrun's rendezvous is given them."""
    pairs = (part.partition("=") for part in dict(launch.rendezvous).get("conf", "").split(","))
    given = {name.strip(): whole_number(value.strip()) for name, _, value in pairs}
    return given.get("last_call_timeout") or LAST_CALL_SECONDS


def _free(launch: Launch, nodes: Nodes) -> list[int]:
    """The numbers that no node has yet."""
    return [node for node in range(launch.nnodes) if node not in nodes.facts]


def _missing(launch: Launch, nodes: Nodes, unnumbered: _Unnumbered) -> str:
    free = _free(launch, nodes)
    if unnumbered:
        return f"{len(free) - len(unnumbered)} more of {launch.nnodes} nodes"
    return f"{nodes_phrase(free)} of {launch.nnodes}"


def _take_in(connection: socket.socket, launch: Launch, nodes: Nodes, unnumbered: _Unnumbered) -> None:
    channel = Channel(connection, nodes.sign_of_life)
    hello = channel.receive(_HELLO, time.monotonic() + _HELLO_SECONDS)
    try:
        facts = from_plain(NodeFacts, dict(hello.values["facts"])) if hello else None
    except (Malformed, KeyError, TypeError, ValueError):
        facts = None
    if facts is None or hello is None:
        channel.close()  # something else that looks at the port
        return
    if refused := _refusal(facts, hello.values.get("nnodes"), launch, nodes.facts):
        channel.send(Message(_REFUSED, {"why": refused}))
        channel.close()
        return
    facts = replace(facts, skew=facts.time - time.time())
    if facts.node_rank == UNNUMBERED:
        unnumbered.append((facts, channel))
    else:
        nodes.facts[facts.node_rank], nodes.channels[facts.node_rank] = facts, channel


def _refusal(facts: NodeFacts, nnodes: object, launch: Launch, came: Mapping[int, NodeFacts]) -> str | None:
    if facts.version != came[0].version:
        return f"ddpdoctor {facts.version} on {facts.host}, and {came[0].version} on {came[0].host}"
    if nnodes != launch.nnodes:
        return f"--nnodes {nnodes} on {facts.host}, and --nnodes {launch.nnodes} on {came[0].host}"
    if facts.node_rank in came:
        other = came[facts.node_rank].host
        return f"--node-rank {facts.node_rank} was given on {other} and on {facts.host}"
    return None


# -- the others -------------------------------------------------------------------------------------------


def _join(launch: Launch, here: NodeFacts, deadline: float, tell: Callable[[str], object]) -> Nodes:
    place = f"{launch.master_addr} port {launch.master_port}"
    tell(f"waiting for node 0 at {place}")
    nodes = Nodes(here, {})
    connection = _connected(launch, deadline)
    if isinstance(connection, str):
        raise NotMet(f"no answer of node 0 at {place}: {connection}")
    address = here.address or str(connection.getsockname()[0])
    channel = Channel(connection, nodes.sign_of_life)
    nodes.channels[0] = channel
    facts = replace(here, address=address, time=time.time())
    channel.send(Message(_HELLO, {"facts": asdict(facts), "nnodes": launch.nnodes}))
    tell("waiting for the other nodes")
    welcome = _answer(channel, deadline)
    if welcome.kind == _REFUSED:
        nodes.close()
        raise NotMet(f"node 0 refused this host: {welcome.values.get('why', '')}")
    known = [from_plain(NodeFacts, facts) for facts in welcome.values["nodes"]]
    nodes.facts = {facts.node_rank: facts for facts in known}
    nodes.absent = tuple(welcome.values["absent"])
    nodes.here = nodes.facts[welcome.values["node_rank"]]
    return nodes


def _connected(launch: Launch, deadline: float) -> socket.socket | str:
    """A connection to node 0; or why there is none."""
    while True:
        try:
            return socket.create_connection((launch.master_addr, launch.master_port), _CONNECT_SECONDS)
        except OSError as failed:
            if time.monotonic() > deadline:
                return failed.strerror or str(failed)
        time.sleep(_PAUSE)


def _answer(channel: Channel, deadline: float) -> Message:
    slack = deadline + _HELLO_SECONDS  # node 0 has the same deadline, and says who did not come
    over = False
    while not over:
        # Asked before: what node 0 has said, it may have said as the last thing before it left.
        over = channel.lost is not None or time.monotonic() > slack
        for kind in (_WELCOME, _REFUSED):
            if message := channel.receive(kind, time.monotonic() + _PAUSE):
                return message
    channel.close()
    raise NotMet("node 0 did not say who came")


def nodes_phrase(numbers: Sequence[int]) -> str:
    """``node 2`` or ``nodes 1, 2``."""
    return f"node{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"

"""Commands of several hosts that meet: threads on this machine stand for them."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ddpdoctor.launch import UNNUMBERED, Launch
from ddpdoctor.nodes.channel import ENDED, Channel, Message, NoMessage, read_message
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.nodes.meeting import Nodes, NotMet, meet, wait_for_name
from tests.support.command import free_port

WAITS = 3.0
"""Seconds for those who come; on a busy machine a thread may get its first turn late."""
LONG = 60.0


def come(node: int, port: int, nnodes: int = 2, seconds: float = LONG, **facts: str) -> Nodes:
    launch = Launch(nnodes=nnodes, node_rank=node, master_port=port)
    here = NodeFacts(node, f"node{node}", address="127.0.0.1", **facts)  # type: ignore[arg-type]
    return meet(launch, here, time.monotonic() + seconds, lambda _: None)


def together(*come_in: Callable[[], Nodes]) -> list[Nodes | NotMet]:
    """What came of each."""
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(each) for each in come_in]
    return [future.exception() or future.result() for future in futures]  # type: ignore[misc]


def leave(met: list[Nodes | NotMet]) -> None:
    """All at once: who leaves waits for the others to leave, for a second at most."""
    with ThreadPoolExecutor() as pool:
        for nodes in met:
            if isinstance(nodes, Nodes):
                pool.submit(nodes.close)


def test_all_know_all_and_the_port_is_free_for_the_job() -> None:
    port = free_port()
    met = together(*(lambda node=node: come(node, port, 3) for node in range(3)))  # type: ignore[misc]
    for nodes in met:
        assert isinstance(nodes, Nodes)
        assert [facts.host for facts in nodes.facts.values()] == ["node0", "node1", "node2"]
        assert nodes.absent == ()
    socket.create_server(("", port)).close()
    leader, first, second = met
    for nodes in (second, first):
        nodes.channels[0].send(Message("verdicts", {"of": nodes.here.host}, b"records"))
    messages = leader.collect("verdicts", time.monotonic() + LONG)
    assert {node: (m.values["of"], m.body) for node, m in messages.items()} == {
        1: ("node1", b"records"),
        2: ("node2", b"records"),
    }
    leave(met)
    assert leader.lost() == first.lost() == {}


def test_hosts_without_a_number_get_the_free_ones_in_the_order_of_their_names() -> None:
    port = free_port()

    def unnumbered(host: str) -> Nodes:
        here = NodeFacts(UNNUMBERED, host, address="127.0.0.1")
        launch = Launch(nnodes=4, node_rank=UNNUMBERED, master_port=port)
        return meet(launch, here, time.monotonic() + LONG, lambda _: None)

    met = together(
        lambda: come(0, port, 4),
        lambda: unnumbered("zinc"),
        lambda: unnumbered("iron"),
        lambda: come(2, port, 4),
    )
    for nodes in met:
        assert isinstance(nodes, Nodes)
        assert [facts.host for facts in nodes.facts.values()] == ["node0", "iron", "node2", "zinc"]
        assert nodes.facts[nodes.here.node_rank] == nodes.here
    leave(met)


def come_elastic(host: str, port: int, most: int, conf: str, number: int = UNNUMBERED) -> Nodes:
    launch = Launch(
        nnodes=most, spare_nodes=1, node_rank=number, master_port=port, rendezvous=(("conf", conf),)
    )
    return meet(launch, NodeFacts(number, host, address="127.0.0.1"), time.monotonic() + LONG, lambda _: None)


@pytest.mark.parametrize(("conf", "most"), [("join_timeout=9, last_call_timeout=1", 3), ("", 2)])
def test_an_elastic_job_begins_with_the_hosts_that_came_by_the_last_call(conf: str, most: int) -> None:
    port = free_port()
    met = together(
        lambda: come_elastic("zero", port, most, conf, 0), lambda: come_elastic("iron", port, most, conf)
    )
    for nodes in met:
        assert isinstance(nodes, Nodes)
        assert [facts.host for facts in nodes.facts.values()] == ["zero", "iron"]
        assert nodes.absent == ()
    leave(met)


def test_of_an_elastic_job_only_those_are_missed_that_it_cannot_do_without() -> None:
    launch = Launch(nnodes=4, spare_nodes=1, node_rank=0, master_port=free_port())
    nodes = meet(launch, NodeFacts(0, "node0"), time.monotonic() + 0.1, lambda _: None)
    assert nodes.absent == (1, 2)


def test_who_never_came_is_known_to_all_who_did() -> None:
    port = free_port()
    met = together(lambda: come(0, port, 3, WAITS), lambda: come(1, port, 3, WAITS))
    for nodes in met:
        assert isinstance(nodes, Nodes)
        assert nodes.absent == (2,)
    leave(met)


def test_without_node_0_there_is_no_meeting() -> None:
    (alone,) = together(lambda: come(1, free_port(), 2, 0.5))
    assert isinstance(alone, NotMet)
    assert "no answer of node 0 at 127.0.0.1 port" in str(alone)
    assert "Connection refused" in str(alone)


def test_two_hosts_with_one_number() -> None:
    port = free_port()
    met = together(
        lambda: come(0, port, 3, WAITS), lambda: come(1, port, 3, WAITS), lambda: come(1, port, 3, WAITS)
    )
    (refused,) = [str(one) for one in met if isinstance(one, NotMet)]
    assert refused == "node 0 refused this host: --node-rank 1 was given on node1 and on node1"
    leave(met)


def test_another_version_is_refused() -> None:
    port = free_port()
    _, other = together(lambda: come(0, port, 2, WAITS), lambda: come(1, port, 2, WAITS, version="0.0.1"))
    assert isinstance(other, NotMet)
    assert "ddpdoctor 0.0.1 on node1" in str(other)


def test_what_node_0_said_before_it_left_is_heard_by_a_host_that_asks_late() -> None:
    port = free_port()

    def come_late() -> Nodes:
        launch = Launch(nnodes=2, node_rank=1, master_port=port)
        here = NodeFacts(1, "node1", address="127.0.0.1", version="0.0.1")
        return meet(launch, here, time.monotonic() + LONG, lambda text: time.sleep("other nodes" in text))

    _, other = together(lambda: come(0, port, 2, WAITS), come_late)
    assert "ddpdoctor 0.0.1 on node1" in str(other)


def test_a_name_that_resolves_later_is_waited_for() -> None:
    answers: list[tuple[str, ...]] = [(), (), ("10.0.0.1",), ()]
    asked: list[str] = []

    def resolves(name: str) -> tuple[str, ...]:
        asked.append(name)
        return answers.pop(0)

    told: list[str] = []
    launch = Launch(nnodes=2, node_rank=1, master_addr="job-0.job")
    wait_for_name(launch, resolves, time.monotonic() + 600, told.append)
    assert asked == ["job-0.job"] * 3
    assert told == ["waiting for job-0.job to resolve to an address"] * 2


def test_a_name_that_never_resolves_is_not_waited_for_beyond_the_time_limit() -> None:
    wait_for_name(Launch(master_addr="nowhere"), lambda _: (), time.monotonic() - 1, lambda _: None)


def test_a_port_that_is_taken() -> None:
    port = free_port()
    with socket.create_server(("", port)):
        (alone,) = together(lambda: come(0, port))
    assert str(alone) == f"port {port} of this host cannot be used: Address already in use"


def connected(port: int) -> socket.socket:
    """A connection to this port, as soon as somebody listens there."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port))
        time.sleep(0.02)
    raise TimeoutError


def test_what_is_no_command_of_ours_is_left_out() -> None:
    port = free_port()

    def knock() -> Nodes:
        with connected(port) as other:
            other.sendall(b"GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n")
        return come(1, port)

    met = together(lambda: come(0, port), knock)
    for nodes in met:
        assert isinstance(nodes, Nodes)
        assert nodes.absent == ()
    leave(met)


def test_the_loss_of_a_host_is_told_to_the_others() -> None:
    port = free_port()
    met = together(*(lambda node=node: come(node, port, 3) for node in range(3)))  # type: ignore[misc]
    leader, first, second = met
    first.channels[0]._connection.shutdown(socket.SHUT_RDWR)  # as the kernel does when its process is killed
    deadline = time.monotonic() + LONG
    while not (leader.lost() and second.lost()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leader.lost() == {1: "its connection closed"}
    assert second.lost() == {1: "its connection closed"}
    leave(met)


def test_the_states_of_all_are_known_to_all() -> None:
    port = free_port()
    met = together(*(lambda node=node: come(node, port, 3) for node in range(3)))  # type: ignore[misc]
    for number, nodes in enumerate(met):
        nodes.status["state"] = f"state {number}"
    deadline = time.monotonic() + LONG
    while len([s for s in met[2].statuses().values() if s.get("state")]) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {node: status["state"] for node, status in met[2].statuses().items()} == {
        0: "state 0",
        1: "state 1",
    }
    leave(met)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n",
        b"ddpdoctor-1\n" + b"\xff" * 12,
        b"ddpdoctor-1\n" + (2).to_bytes(4, "big") + bytes(8) + b"[]",
        b"ddpdoctor-1\n" + (2).to_bytes(4, "big") + bytes(8) + b"{}",
    ],
)
def test_what_is_no_message_is_refused(sent: bytes) -> None:
    left = bytearray(sent)

    def read(count: int) -> bytes:
        taken = bytes(left[:count])
        del left[:count]
        return taken

    with pytest.raises(NoMessage):
        read_message(read)


def test_who_is_told_goodbye_may_close_before_the_other_side_goes_on() -> None:
    here, there = socket.socketpair()
    channel = Channel(here)
    send = channel.send

    def send_and_be_left(message: Message) -> None:
        send(message)
        there.close()
        channel._threads[0].join(LONG)

    channel.send = send_and_be_left  # type: ignore[method-assign]
    channel.close()
    assert channel.lost == ENDED


def test_a_large_message_arrives_whole() -> None:
    here, there = socket.socketpair()
    sender, receiver = Channel(here), Channel(there)
    body = bytes(range(256)) * 20_000
    sender.send(Message("records", {}, body))
    message = receiver.receive("records", time.monotonic() + LONG)
    assert message is not None
    assert message.body == body
    sender.close()
    receiver.close()

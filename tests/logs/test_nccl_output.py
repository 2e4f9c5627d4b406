"""NCCL's debug output: lines in the formats of several versions, written for these tests."""

from ddpdoctor.logs.nccl_output import Link, NcclFacts, as_evidence, parse
from ddpdoctor.model import Evidence


def output(*messages, gpu=0):
    return "".join(f"node-a:100:20{gpu} [{gpu}] NCCL INFO {message}\n" for message in messages)


COMMON = (
    "cudaDriverVersion 12080",
    "NCCL_IB_TIMEOUT set by environment to 22.",
    "NCCL_SOCKET_IFNAME set by environment to eth",
    "Bootstrap: Using eth0:10.10.0.1<0>",
)


def test_one_node_over_peer_access():
    text = "NCCL version 2.27.5+cuda12.8\n" + output(
        *COMMON,
        "NET/Socket : Using [0]eth0:10.10.0.1<0> [1]ib0:fe80::1%ib0<0>",
        "Using network Socket",
        "Channel 00/02 :    0   1   2",
        "Channel 01/02 :    0   2   1",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "Channel 01/0 : 0[0] -> 2[2] via P2P/IPC/read",
        "Channel 01 : 0[0] -> 2[2] via SHM/direct/direct",
        "Connected all rings, use ring PXN 0 GDR 1",
        "2 coll channels, 0 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer",
    )
    assert parse(text) == NcclFacts(
        version="2.27.5+cuda12.8",
        cuda_driver=(12, 8),
        bootstrap=("eth0", "10.10.0.1"),
        sockets=(("eth0", "10.10.0.1"), ("ib0", "fe80::1%ib0")),
        network="Socket",
        links=(
            Link(0, 0, 1, "P2P/CUMEM"),
            Link(1, 0, 2, "P2P/IPC/read"),
            Link(1, 0, 2, "SHM/direct/direct"),
        ),
        channels=2,
        rings=((0, 1, 2), (0, 2, 1)),
        variables=(("NCCL_IB_TIMEOUT", "22"), ("NCCL_SOCKET_IFNAME", "eth")),
    )


def test_two_nodes_over_infiniband():
    facts = parse(
        output(
            "Bootstrap : Using eth0:10.10.0.1<0>",
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.10.0.1<0>",
            "Using network IB",
            "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA",
            "Channel 01/0 : 7[d000] -> 8[1a000] [receive] via NET/Socket/3",
        )
    )
    assert facts.adapters == (("mlx5_0:1", "IB"), ("mlx5_1:1", "RoCE"))
    assert [link.transport for link in facts.links] == ["NET/IB/GDRDMA", "NET/Socket"]
    assert (facts.links[0].sender, facts.links[0].receiver) == (7, 8)


def test_warnings_keep_their_place_in_nccls_source():
    text = (
        "\n[2026-01-02 03:04:05] node-a:100:201 [0] misc/socket.cc:483 (socketWait) NCCL WARN closed by peer\n"
        "\nnode-a:100:201 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 port error\n"
        "\nnode-a:100:201 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 port error\n"
        "node-a:100:201 [0] NCCL WARN without a place\n"
    )
    assert parse(text).warnings == (
        ("misc/socket.cc:483", "closed by peer"),
        ("transport/net_ib.cc:93", "NET/IB : mlx5_0:1 port error"),
        ("", "without a place"),
    )


def test_a_flood_of_warnings_is_bounded():
    text = "".join(f"n:1:1 [0] a.cc:1 NCCL WARN number {number}\n" for number in range(500))
    assert len(parse(text).warnings) == 50


def test_other_output_shows_nothing():
    assert parse("loading data\nChannel 00/0 : 0[0] -> 1[1] via P2P/IPC\n\x1b[31mred\n") == NcclFacts()
    assert as_evidence({0: parse("")}) == ()


def test_ranks_that_say_the_same_share_a_line():
    common = "NCCL version 2.27.5+cuda12.8\n" + output(*COMMON, "Using network IB", "2 coll channels, 0 p2p")
    peer = output("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    net = output("Channel 00/0 : 2[0] -> 0[0] [send] via NET/IB/0")
    warned = "node-a:1:1 [0] misc/ibvwrap.cc:160 NCCL WARN Call to \x1b[31mibv_reg_mr failed\n"
    evidence = as_evidence(
        {0: parse(common + peer), 1: parse(common + peer), 2: parse(common + net + warned)}
    )
    assert evidence == (
        Evidence("NCCL 2.27.5+cuda12.8, driver for CUDA 12.8", (0, 1, 2)),
        Evidence("ranks meet over eth0 (10.10.0.1)", (0, 1, 2)),
        Evidence("network IB: no device named", (0, 1, 2)),
        Evidence("2 channels over P2P/CUMEM", (0, 1)),
        Evidence("NCCL_IB_TIMEOUT='22'", (0, 1, 2)),
        Evidence("NCCL_SOCKET_IFNAME='eth'", (0, 1, 2)),
        Evidence("2 channels over NET/IB", (2,)),
        Evidence("WARN misc/ibvwrap.cc:160: Call to \\x1b[31mibv_reg_mr failed", (2,)),
    )

"""A line that does no harm, before or after a failure, does not change what is reported as its cause."""

import pytest

from ddpdoctor.model import Level
from tests.support.logs import explained, raised, summary
from tests.support.waits import sizes, wait

NCCL = "node-a:31:77 [0] "
HARMLESS = {
    "no address of IPv6": "[W socket.cpp:558] [c10d] The IPv6 network addresses of (node-0, 29500) cannot be "
    "retrieved (gai error: -2 - Name or service not known).",
    "no reverse lookup": "[W724 18:22:38.9 socket.cpp:200] [c10d] The hostname of the client socket cannot be "
    "retrieved. err=-3",
    "refused once": "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-0]:29500 (errno: 111 - "
    "Connection refused).",
    "bound otherwise": "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - "
    "Address already in use).",
    "waiting": "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for "
    "rank: 0, key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)",
    "no InfiniBand": NCCL + "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    "no plugin": NCCL
    + "NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open",
    "retried": NCCL + "NCCL INFO Call to connect returned Connection refused, retrying",
    "bridge": NCCL + "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
    "device guessed": "[rank0]:[W1022 10:11:12.1 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to "
    "perform barrier as devices used by this process are currently unknown.",
    "adapter closed": NCCL + "transport/net_ib.cc:117 NCCL WARN NET/IB : Unable to open device mlx5_6",
}
FAILURES = {
    "DD304": raised(1, "KeyError", "'x'") + summary(1),
    "DD806": raised(1, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    + summary(1),
    "DD017": summary(1, -9),
    "DD012": summary(1, -11),
    "DD301": sizes(4) + wait(0) + wait(1) + wait(3),
    "DD805": raised(1, "RuntimeError", "CUDA error: uncorrectable ECC error encountered") + summary(1),
}


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("name", HARMLESS)
def test_the_cause_stays(name, code):
    line = HARMLESS[name] + "\n"
    assert explained(line + FAILURES[code])[0].code == code
    assert explained(FAILURES[code] + line)[0].code == code


@pytest.mark.parametrize("name", HARMLESS)
def test_alone_it_is_information_at_most(name):
    findings = explained(f"{HARMLESS[name]}\nready\n")
    assert [finding for finding in findings if finding.level is not Level.INFO] == []

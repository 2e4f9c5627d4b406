"""The cases: on which hosts the command runs, how it is launched there, what goes wrong, and what the report says."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.namespaces import HostsBed

SCRIPT = Path(__file__).with_name("train.py")
DATA = SCRIPT.with_name("data.py")
PORT = 20500
NAMED_WITHIN = 15.0
"""Seconds from the loss of a host to the end of the others' commands."""
RUN = ("--select", "run", str(SCRIPT))
RUN_DATA = ("--select", "run", str(DATA))
Launched = tuple[list[str], dict[str, str]]
"""The options of the launch on a host, and what its environment adds."""


def numbered(bed: HostsBed, number: int) -> Launched:
    """By options that number the hosts."""
    return bed.launch(number, PORT), {}


def by_four(bed: HostsBed, number: int) -> Launched:
    """With four ranks on each."""
    return bed.launch(number, PORT, nproc=4), {"OMP_NUM_THREADS": "1"}


def by_address(bed: HostsBed, number: int) -> Launched:
    """By the same options on each."""
    return [
        "--nnodes",
        str(bed.count),
        "--nproc",
        "2",
        "--master-addr",
        "node0",
        "--master-port",
        str(PORT),
    ], {}


def by_c10d(bed: HostsBed, number: int) -> Launched:
    """By those of a rendezvous that numbers them."""
    endpoint = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"node0:{PORT}", "--rdzv-id", "bed")
    return ["--nnodes", str(bed.count), "--nproc", "2", *endpoint], {}


def elastic(bed: HostsBed, number: int) -> Launched:
    """By those of an elastic job that can lose one of them."""
    nodes = ("--nnodes", f"{bed.count - 1}:{bed.count}", "--nproc", "2", "--max-restarts", "1")
    address = ("--master-addr", "node0", "--master-port", str(PORT))
    conf = ("--rdzv-conf", "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3")
    # Else the ranks of all attempts share one store, in which gloo finds the addresses of the attempt before.
    return [*nodes, *address, *conf], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def by_trainer(bed: HostsBed, number: int) -> Launched:
    """By the variables that Kubeflow's Trainer sets in each pod."""
    values = {"NNODES": bed.count, "NPROC_PER_NODE": 2, "NODE_RANK": number, "MASTER_PORT": PORT}
    return [], {f"PET_{name}": str(value) for name, value in values.items()} | {"PET_MASTER_ADDR": "node0"}


def by_operator(bed: HostsBed, number: int) -> Launched:
    """By those of a PyTorchJob."""
    environ = {"RANK": str(number), "WORLD_SIZE": str(bed.count), "MASTER_PORT": str(PORT)}
    return ["--nproc", "2"], {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "MASTER_ADDR": "node0", **environ}


GROUP = ("--select", "host,group")


def other_settings(bed: HostsBed, number: int) -> Launched:
    """With a setting of torch's that host 1 alone has."""
    return bed.launch(number, PORT), {"TORCH_DISTRIBUTED_DEBUG": "INFO"} if number == 1 else {}


def with_modules(folder: str) -> Callable[[HostsBed, int], Launched]:
    """With Python modules of this folder that host 1 alone finds."""

    def launch(bed: HostsBed, number: int) -> Launched:
        path = {"PYTHONPATH": str(Path(__file__).with_name(folder))}
        return bed.launch(number, PORT), path if number == 1 else {}

    return launch


def other_interface(bed: HostsBed, number: int) -> Launched:
    """With an interface for gloo's data on host 1 that is on another network."""
    return bed.launch(number, PORT), {"GLOO_SOCKET_IFNAME": "data0"} if number == 1 else {}


def other_numa(bed: HostsBed, number: int) -> Launched:
    """With two NUMA nodes on host 1, as its kernel tells it."""
    nodes = "/sys/devices/system/node"
    mount = f"mount -t tmpfs none {nodes} && mkdir {nodes}/node0 {nodes}/node1"
    return bed.launch(number, PORT), {"MOUNT": mount} if number == 1 else {}


def one_number_twice(bed: HostsBed, number: int) -> Launched:
    """With the number of host 1 on host 2, too."""
    return bed.launch(min(number, 1), PORT), {}


def other_file(bed: HostsBed, number: int) -> Launched:
    """With a file of its own on each host, by one name."""
    return [*bed.launch(number, PORT)], {"OWN": f"rate: {number}"}


@dataclass(frozen=True)
class Case:
    """Words of the command, and what its report has to say."""

    words: tuple[str, ...]
    expected: dict[str, str]
    """The beginning of the headline of each finding above info, by code; and of remarks that have to be there."""
    launch: Callable[[HostsBed, int], Launched] | None = numbered
    """None for mpirun."""
    hosts: int = 2
    absent: int | None = None
    resolves: tuple[int, str] | None = None
    prepares: Callable[[HostsBed], None] | None = None
    """Makes the network what it should not be."""
    loses: Callable[[HostsBed, int], None] | None = None
    """What becomes of a host while it trains."""
    lost: int = 1
    """Which."""
    within: float = NAMED_WITHIN
    """Seconds from then to the end of the others' commands."""
    reported_by: int = 0
    timeout: float = 100.0
    seconds: float = 240.0
    """For all of it."""
    command: str = "check"

    @property
    def script(self) -> Path:
        """The one whose comments say which lines are to be named."""
        return DATA if str(DATA) in self.words else SCRIPT


def kill(bed: HostsBed, host: int) -> None:
    """Kill all processes of a host, as its end does."""
    for pid in bed.pids(host):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue


def cut(bed: HostsBed, host: int) -> None:
    """Pull its cable."""
    bed.cut(host)


def firewall(bed: HostsBed) -> None:
    """One on host 0 that answers nothing at the ports for data."""
    bed.run(0, "ip", "rule", "add", "pref", "1000", "lookup", "local")
    bed.run(0, "ip", "rule", "del", "pref", "0")
    ports = ("ipproto", "tcp", "dport", "32768-60999")
    bed.run(0, "ip", "rule", "add", "pref", "500", "iif", "eth0", *ports, "blackhole")


def large_packets(bed: HostsBed) -> None:
    """Host 0 takes packets that host 1 does not."""
    bed.run(0, "ip", "link", "set", "eth0", "mtu", "9000")


def other_network(bed: HostsBed) -> None:
    """Host 1 is on another network, too, that host 0 does not know."""
    bed.run(1, "ip", "link", "add", "data0", "type", "veth", "peer", "name", "data1")
    bed.run(1, "ip", "addr", "add", "192.168.77.2/24", "dev", "data0")
    for interface in ("data0", "data1"):
        bed.run(1, "ip", "link", "set", interface, "up")


def slow_host(bed: HostsBed) -> None:
    """Host 1 sends little at a time."""
    bed.run(
        1,
        "tc",
        "qdisc",
        "add",
        "dev",
        "eth0",
        "root",
        "tbf",
        "rate",
        "20mbit",
        "burst",
        "32k",
        "latency",
        "400ms",
    )


def late_name(bed: HostsBed) -> None:
    """Host 1 learns the name of host 0 some seconds later, as in Kubernetes that of a pod that starts later."""
    hosts = bed.hosts_file(1)
    known = hosts.read_text()
    hosts.write_text("127.0.0.1 localhost\n")
    timer = threading.Timer(6.0, hosts.write_text, [known])
    timer.daemon = True
    timer.start()


REMARK = {"DD315": "host node2 (ranks 4-5) was lost, and the job restarted without it: "}
LOST = {"DD315": "host node1 (ranks 2-3) was lost: "}
CASES = {
    "right": Case(RUN, {}),
    "right_group": Case(GROUP, {}),
    "by_address": Case((*GROUP, *RUN), {}, by_address, hosts=3),
    "by_c10d": Case((*RUN, "leaves_the_loop"), {"DD308": "rank 3 on node1 "}, by_c10d),
    "by_trainer": Case((*RUN, "leaves_the_loop"), {"DD308": "rank 3 on node1 "}, by_trainer),
    "by_operator": Case((*GROUP, *RUN), {}, by_operator),
    "sixteen_hosts": Case(
        (*RUN, "shards_of_each_host"),
        {"DD105": "DistributedSampler of rank 0 on node0 "},
        by_four,
        hosts=16,
        timeout=400.0,
        seconds=500.0,
    ),
    "by_mpirun": Case((*RUN, "leaves_the_loop"), {"DD308": "rank 3 on node1 "}, None),
    "name_comes_late": Case((*GROUP, *RUN), {}, by_trainer, prepares=late_name),
    "unnumbered_never_comes": Case(
        GROUP, {"DD004": "node 2 did not join"}, by_address, hosts=3, absent=2, timeout=10
    ),
    "three_hosts": Case(GROUP, {}, hosts=3),
    "shards_of_each_host": Case(
        (*RUN, "shards_of_each_host"), {"DD105": "DistributedSampler of rank 0 on node0 "}
    ),
    "leaves_the_loop": Case((*RUN, "leaves_the_loop"), {"DD308": "rank 3 on node1 "}),
    "watched": Case((*RUN, "leaves_the_loop"), {"DD308": "rank 3 on node1 "}, command="watch"),
    "blocks": Case((*RUN, "blocks"), {"DD307": "rank 2 on node1 "}),
    "raises": Case((*RUN, "raises"), {"DD304": "rank 2 on node1 failed with ValueError"}),
    "is_killed": Case((*RUN, "is_killed"), {"DD012": "rank 2 on node1 "}),
    "saves": Case((*RUN, "saves"), {}),
    "saves_on_its_own_disk": Case(
        (*RUN, "saves_on_its_own_disk"), {"DD408": "ranks 2-3 on node1 cannot find "}
    ),
    "lost": Case((*RUN, "slow"), LOST, loses=kill),
    "cut": Case((*RUN, "slow"), LOST, loses=cut),
    "lost_of_three": Case((*RUN, "slow"), LOST, hosts=3, loses=kill),
    "cut_of_three": Case((*RUN, "slow"), LOST, hosts=3, loses=cut),
    "elastic_lost": Case((*RUN, "slow_of_three"), REMARK, elastic, hosts=3, loses=kill, lost=2, within=120.0),
    "elastic_cut": Case(
        (*RUN, "slow_of_three"),
        {"DD315": "host node2 (ranks 4-5) was lost: "},
        elastic,
        hosts=3,
        loses=cut,
        lost=2,
        within=30.0,
    ),
    "elastic_cut_watched": Case(
        ("--verbose", *RUN, "slow_of_three_with_timeout"),
        REMARK,
        elastic,
        hosts=3,
        loses=cut,
        lost=2,
        within=200.0,
        command="watch",
    ),
    "leader_lost": Case(
        (*RUN, "slow"), {"DD315": "host node0 (ranks 0-1) was lost: "}, loses=kill, lost=0, reported_by=1
    ),
    "late_clock": Case(
        GROUP,
        {"DD023": "the clocks of hosts differ: node1 is 40 s behind node0"},
        with_modules("late_clock"),
    ),
    "one_number_twice": Case(GROUP, {"DD004": "node 2 did not join"}, one_number_twice, hosts=3, timeout=10),
    "never_comes": Case(GROUP, {"DD004": "node 2 did not join"}, hosts=3, absent=2, timeout=10),
    "no_leader": Case(GROUP, {"DD004": "no answer of node 0"}, absent=0, reported_by=1, timeout=8),
    "other_settings": Case(
        GROUP, {"DD022": "TORCH_DISTRIBUTED_DEBUG differs between hosts: "}, other_settings
    ),
    "other_configuration": Case(
        (*GROUP, str(SCRIPT), "own/config"), {"DD022": "'own/config' differs between hosts: "}, other_file
    ),
    "other_script": Case(
        (*GROUP, "own/config"), {"DD022": "'own/config' differs between hosts: "}, other_file
    ),
    "other_data": Case(
        (*RUN, "reads_data"),
        {"DD111": "the 256 samples of TensorDataset differ between ranks 0-3"},
        other_file,
    ),
    "right_data": Case(RUN_DATA, {}),
    "not_sharded": Case(
        (*RUN_DATA, "not_sharded"), {"DD101": "ranks 0-3 all train on the same 200 samples "}
    ),
    "order_repeated": Case(
        (*RUN_DATA, "order_repeated"), {"DD103": "training passes use the same shuffle order on ranks 0-3"}
    ),
    "order_of_each_rank": Case(
        (*RUN_DATA, "order_of_each_rank"), {"DD104": "ranks 0-3 share 50 of the 144 samples they draw "}
    ),
    "shards_uneven": Case(
        (*RUN_DATA, "shards_uneven"), {"DD106": "ranks 1-2 ran out of batches after 5, and ranks 0, 3 wait "}
    ),
    "split_of_each_rank": Case(
        (*RUN_DATA, "split_of_each_rank"),
        {"DD107": "rank 1 on node0 trains on 93 of the 162 samples that rank 2 on node1 holds out"},
    ),
    "shards_too_small": Case(
        (*RUN_DATA, "shards_too_small"),
        {"DD112": "a training pass over TensorDataset has no batch on ranks 0-3"},
    ),
    "padded": Case(
        (*RUN_DATA, "padded"), {"DD501": "4 ranks evaluate 164 samples of TensorDataset, which has 162"}
    ),
    "not_reduced": Case(
        (*RUN_DATA, "not_reduced"),
        {"DD502": "rank 0 on node0 prints the result after an evaluation of 41 of 162 samples"},
    ),
    "other_build": Case(
        GROUP, {"DD014": "torch differs between ranks: 2.13.0+c"}, with_modules("other_build")
    ),
    "other_gpus": Case(
        ("--select", "DD022", "--backend", "gloo"),
        {"DD022": "the number of visible GPUs differs between hosts: 0 on node0; 1 on node1"},
        with_modules("with_gpu"),
    ),
    "other_numa": Case(
        GROUP, {"DD022": "the number of NUMA nodes differs between hosts: 1 on node0; 2 on node1"}, other_numa
    ),
    "other_interface": Case(
        GROUP,
        {"DD709": "a connection fails from node0 to node1 at 192.168.77.2: "},
        other_interface,
        prepares=other_network,
        timeout=40,
    ),
    "name_of_another": Case(
        GROUP,
        {"DD004": "no answer of node 0"},
        by_address,
        resolves=(1, "10.213.0.99 node0\n"),
        reported_by=1,
        timeout=10,
    ),
    "firewall": Case(GROUP, {"DD710": "node"}, prepares=firewall),
    "large_packets": Case(
        GROUP,
        {"DD711": "the MTU differs between hosts: 1500 on node1; 9000 on node0"},
        prepares=large_packets,
    ),
    "slow_host": Case(
        GROUP, {"DD605": "the connections of node1 carry at most "}, hosts=3, prepares=slow_host
    ),
    "loopback": Case(
        GROUP, {"DD003": "hostname 'node1' resolves to 127.0.1.1"}, resolves=(1, "127.0.1.1 node1\n")
    ),
}

"""Runs the cases, each on hosts of its own, and compares what their report says with what is planted.

python -m tests.several_hosts [CASE...]     # as root, from the repository's root
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.namespaces import HostsBed

SCRIPT = Path(__file__).with_name("train.py")
PORT = 20500
SECONDS = 240.0
"""For one case."""
NAMED_WITHIN = 15.0
"""Seconds from the loss of a host to the end of the others' commands."""
RUN = ("--select", "run", str(SCRIPT))
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
    """The beginning of the headline of each finding above info, by code."""
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
    reported_by: int = 0
    timeout: float = 100.0
    seconds: float = 240.0
    """For all of it."""
    command: str = "check"


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
        GROUP, {"DD004": "node 2 did not come"}, by_address, hosts=3, absent=2, timeout=10
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
    "saves_on_its_own_disk": Case(
        (*RUN, "saves_on_its_own_disk"), {"DD408": "ranks 2-3 on node1 cannot find "}
    ),
    "lost": Case((*RUN, "slow"), LOST, loses=kill),
    "cut": Case((*RUN, "slow"), LOST, loses=cut),
    "lost_of_three": Case((*RUN, "slow"), LOST, hosts=3, loses=kill),
    "cut_of_three": Case((*RUN, "slow"), LOST, hosts=3, loses=cut),
    "leader_lost": Case(
        (*RUN, "slow"), {"DD315": "host node0 (ranks 0-1) was lost: "}, loses=kill, lost=0, reported_by=1
    ),
    "late_clock": Case(
        GROUP,
        {"DD023": "the clocks of hosts differ: node1 is 40 s behind node0"},
        with_modules("late_clock"),
    ),
    "one_number_twice": Case(GROUP, {"DD004": "node 2 did not come"}, one_number_twice, hosts=3, timeout=10),
    "never_comes": Case(GROUP, {"DD004": "node 2 did not come"}, hosts=3, absent=2, timeout=10),
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


def main() -> int:
    """Run the cases that are named, or all; the exit status."""
    wrong = [name for name in sys.argv[1:] or CASES if not passes(name, CASES[name])]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all cases are as expected")
    return int(bool(wrong))


def passes(name: str, case: Case) -> bool:
    """Run a case, print what came of it, and say whether it is as expected."""
    resolves = dict([case.resolves]) if case.resolves else {}
    with tempfile.TemporaryDirectory() as folder, HostsBed(case.hosts, resolves) as bed:
        if case.prepares is not None:
            case.prepares(bed)
        began, commands = time.monotonic(), start(case, bed, Path(folder))
        if case.loses is not None:
            began = wait_for(Path(folder, "trains"))
            case.loses(bed, case.lost)
        ended = {host: command.communicate(timeout=case.seconds) for host, command in commands.items()}
        seconds = time.monotonic() - began
        there = [host for host in range(case.hosts) if case.loses is None or host != case.lost]
        left = [bed.pids(host) for host in there]
    statuses = {host: command.returncode for host, command in commands.items() if host in there}
    problems = list(differences(case, ended[case.reported_by][0]))
    if len({*statuses.values()}) > 1:
        problems.append(f"exit statuses {statuses}")
    if any(left):
        problems.append(f"processes left: {left}")
    if case.loses is not None and seconds > NAMED_WITHIN:
        problems.append(f"named after {seconds:.1f} s")
    print(f"{name:22} {seconds:6.1f} s  {'as expected' if not problems else '; '.join(problems)}", flush=True)
    if problems:
        print(*(text[-1500:] for said in ended.values() for text in said), sep="\n")
    return not problems


def start(case: Case, bed: HostsBed, folder: Path) -> "dict[int, subprocess.Popen[str]]":
    """Start the command on each host, on which the folder ``own`` is a disk of its own."""
    (folder / "own").mkdir()
    limit = ("--timeout", str(case.timeout)) if case.command == "check" else ()
    usual = (*limit, "--quiet", "--format", "json")
    command = (sys.executable, "-m", "ddpdoctor", case.command)
    if case.launch is None:
        words = [*mpirun(bed, folder), *command, *usual, "--nproc", "2", *case.words]
        return {0: bed.start(0, words, folder, {"SCRATCH": str(folder)})}
    commands = {}
    for host in range(case.hosts):
        if host != case.absent:
            launch, environ = case.launch(bed, host)
            words = [*command, *launch, *usual, *case.words]
            own = f'mount -t tmpfs none {folder}/own && echo "$OWN" > {folder}/own/config'
            own += ' && eval "${MOUNT:-true}" && exec "$@"'
            mounted = ["sh", "-c", own, "sh", *words]
            commands[host] = bed.start(host, mounted, folder, {"SCRATCH": str(folder), **environ})
    return commands


def mpirun(bed: HostsBed, folder: Path) -> list[str]:
    """Open MPI's mpirun, which starts its daemons on the other hosts by this agent instead of ssh."""
    agent, names = folder / "agent", ",".join(f"node{host}" for host in range(bed.count))
    cases = "".join(
        f'node{host}) exec {shlex.join(bed.command(host, ["sh", "-c"]))} "$*";;\n'
        for host in range(bed.count)
    )
    agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}esac\n")
    agent.chmod(0o755)
    options = ("--allow-run-as-root", "--mca", "plm_rsh_agent", str(agent), "--host", names)
    return ["mpirun", *options, "-N", "1"]


def wait_for(file: Path) -> float:
    """Wait until a file is there, and a little longer; the time."""
    end = time.monotonic() + SECONDS
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1)
    return time.monotonic()


def differences(case: Case, report: str) -> Sequence[str]:
    """What a report does not say, or says beside it."""
    try:
        findings: list[dict[str, Any]] = json.loads(report)["findings"]
    except ValueError:
        return ["no report"]
    told = {
        finding["code"]: finding["headline"]
        for finding in findings
        if finding["level"] != "info" or finding["code"] in case.expected
    }
    lacking = [code for code, start in case.expected.items() if not told.get(code, "").startswith(start)]
    return [f"{code} is not told" for code in lacking] + [
        f"{code}: {headline}"
        for code, headline in told.items()
        if code not in case.expected or code in lacking
    ]


if __name__ == "__main__":
    sys.exit(main())

import errno
from dataclasses import replace

import pytest

from ddpdoctor.cli.launch_from_options import with_port_of_line
from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

LISTENER = {"port": 29500, "address": "0.0.0.0", "pid": 77}
OWNER = {"pid": 77, "command": ["python", "old.py"], "user": "ana"}
TAKEN = {"bound": [29500], "listeners": [LISTENER], "processes": [OWNER]}
CHOSEN = Launch(explicit=frozenset({"master_port"}))
ANY = "the launch takes a free port"


def test_a_listener_is_named_with_pid_user_and_command():
    host = recorded_host(launch=CHOSEN, **TAKEN)
    finding = only_finding("DD002", Source.HOST, host)
    assert finding.level is Level.FAIL
    assert finding.headline == "port 29500 is taken by pid 77 (ana)"
    assert "python old.py" in finding.evidence[0].text
    assert "--master-port 29501" in finding.fix


def test_another_users_listener_is_found_without_its_process():
    finding = only_finding(
        "DD002", Source.HOST, recorded_host(launch=CHOSEN, bound=[29500], listeners=[{"port": 29500}])
    )
    assert "another user's process" in finding.headline


def test_a_port_that_another_check_only_tried_is_free(monkeypatch):
    host = recorded_host(launch=CHOSEN)
    answers = iter([errno.EADDRINUSE, 0])
    monkeypatch.setattr(host.system, "try_bind", lambda address, port: next(answers))
    assert passed("DD002", Source.HOST, host).text == "port 29500 is free"


def test_the_ephemeral_range_is_only_information():
    files = {"/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n"}
    finding = only_finding(
        "DD002", Source.HOST, recorded_host(launch=replace(CHOSEN, master_port=40000), files=files)
    )
    assert finding.level is Level.INFO


def test_a_free_port_passes():
    assert passed("DD002", Source.HOST, recorded_host(launch=CHOSEN)).text == "port 29500 is free"


def test_only_node_0_listens():
    assert (
        "another node"
        in skipped("DD002", Source.HOST, recorded_host(launch=Launch(nnodes=2, node_rank=1))).reason
    )


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        (Launch(), ANY),
        (replace(CHOSEN, standalone=True), ANY),
        (Launch(by_launch_line=True), "the launch line chooses the port"),
        (Launch(rendezvous=(("backend", "etcd"), ("endpoint", "etcd:29500"))), ANY),
    ],
)
def test_a_port_that_the_launch_does_not_use_is_information_where_a_variable_names_it(launch, why):
    assert skipped("DD002", Source.HOST, recorded_host(launch=launch, **TAKEN)).reason == why
    named = {"MASTER_PORT": "29500"}
    skipped("DD002", Source.HOST, recorded_host(launch=launch, environ=named))
    finding = only_finding("DD002", Source.HOST, recorded_host(launch=launch, environ=named, **TAKEN))
    assert (finding.level, finding.headline) == (
        Level.INFO,
        "port 29500, which MASTER_PORT names, is taken by pid 77 (ana)",
    )
    assert finding.why.endswith(f"Here {why}.")


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("torchrun --nproc-per-node 2 --master-port 29501 train.py", 29501),
        ("/opt/bin/torchrun --master_port=29501 train.py", 29501),
        ("python3 -u -m torch.distributed.launch --master_port 29501 train.py", 29501),
        ("accelerate launch --main_process_port 29501 train.py", 29501),
        ("torchrun --standalone --master-port 29501 train.py", None),
        ("torchrun train.py --master-port 29501", None),
        ("bash run.sh --master-port 29501 train.py", None),
        ("python train.py --master-port 29501", None),
    ],
)
def test_the_port_of_a_launch_line_is_the_one_that_it_gives_to_a_launcher(line, port):
    launch = with_port_of_line(Launch(by_launch_line=True), ["--", *line.split()])
    assert (launch.master_port if launch.listens_on_master_port else None) == port

"""What launchers, containers and loggers put before a line changes no verdict."""

import json

import pytest

from ddpdoctor.model import Evidence
from tests.support.logs import explained, log, raised, summary

RAISED = raised(1, "KeyError", "'cat'").replace("[rank1]: ", "")
LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4021\n"
NAMES = 'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a".\n'
NAMES += '\tUnexpected key(s) in state_dict: "module.a".\n'


def document(key: str, line: str) -> str:
    return json.dumps({"time": "2025-01-01", key: line, "stream": "stderr"})


PREFIXES = {
    "nothing": lambda line: line,
    "host": lambda line: f"worker-1: {line}",
    "stream": lambda line: f"stderr: {line}",
    "host without a number": lambda line: f"worker-wl: {line}",
    "host in brackets": lambda line: f"[worker-1] {line}",
    "node in parentheses": lambda line: f"(node1) {line}",
    "rank in words": lambda line: f"<rank 1> {line}",
    "pod and container": lambda line: f"train-worker-1 pytorch {line}",
    "time of a logger": lambda line: f"2025-01-01 10:00:00,123 {line}",
    "logger": lambda line: f"2025-01-01 10:00:00,123 | ERROR | train:88 | {line}",
    "mpirun with time": lambda line: f"Fri Aug 11 12:31:45 2023[1,1]<stderr>:{line}",
    "return at the end": lambda line: f"{line}\r",
    "JSON of Docker": lambda line: document("log", line),
    "JSON of a logger": lambda line: document("message", line),
}


def prefixed(name: str, text: str) -> str:
    return "".join(PREFIXES[name](line) + "\n" for line in text.splitlines())


@pytest.mark.parametrize("name", PREFIXES)
def test_an_exception_is_found_behind_it(name):
    first, *_ = explained(prefixed(name, RAISED) + LOST)
    assert first.headline.endswith("failed with KeyError \"'cat'\"")
    assert first.where is not None


@pytest.mark.parametrize("name", PREFIXES)
def test_a_message_of_several_lines_is_read_behind_it(name):
    assert explained(prefixed(name, RAISED.replace("KeyError: 'cat'\n", NAMES)))[0].code == "DD403"


def test_a_rank_that_the_prefix_names_is_known():
    assert explained(prefixed("rank in words", RAISED))[0].ranks == (1,)


@pytest.mark.parametrize("prefix", ["[1] ", "[prterun-gpu-7-4711@1,1]<stderr>: "])
def test_a_rank_in_the_label_of_mpi_is_known(prefix):
    assert explained("".join(prefix + line + "\n" for line in RAISED.splitlines()))[0].ranks == (1,)


@pytest.mark.parametrize(
    ("prefix", "host"),
    [
        ("worker-1: [rank1]: ", "worker-1"),
        ("[1,mpirank:1,algo-2]<stderr>:", "algo-2"),
        ("[pod/train-worker-1/pytorch] [rank1]: ", "train-worker-1"),
        ("(TrainWorker pid=7, ip=10.0.0.4) [rank1]: ", "10.0.0.4"),
    ],
)
def test_the_host_that_a_prefix_names_is_told(prefix, host):
    finding, *_ = explained("".join(prefix + line + "\n" for line in RAISED.splitlines()))
    assert Evidence(f"on host {host}", (1,)) in finding.evidence


@pytest.mark.parametrize("prefix", ["node1: [default1]:", "1: gpu-7:4101:4300 [1] NCCL WARN x\n1: "])
def test_the_number_of_a_rank_on_its_node_tells_no_host(prefix):
    finding, *_ = explained("".join(prefix + line + "\n" for line in RAISED.splitlines()))
    assert not any("on host" in row.text for row in finding.evidence)


def test_the_host_of_a_rank_in_the_launchers_summary_is_told():
    assert (
        Evidence("on host node-a", (1,)) in explained(raised(1, "KeyError", "'cat'") + summary(1))[0].evidence
    )


def test_ranks_of_one_host_are_told_apart():
    lines = zip(RAISED.splitlines(), RAISED.replace("cat", "dog").splitlines(), strict=True)
    text = "".join(f"node1: [rank1]: {first}\nnode1: [rank2]: {second}\n" for first, second in lines)
    assert explained(text)[0].headline == "ranks 1-2 failed with KeyError \"'cat'\""


def test_processes_whose_prefixes_differ_by_a_number_are_told_apart():
    lines = zip(RAISED.splitlines(), RAISED.replace("cat", "dog").splitlines(), strict=True)
    text = "".join(f"job-1 main {first}\njob-2 main {second}\n" for first, second in lines)
    assert explained(text)[0].headline == "a process failed with KeyError \"'cat'\""


def test_a_progress_bar_before_a_traceback_is_no_prefix():
    bar = " 12%|#| 1/8 [00:01<00:07, 1it/s] "
    assert (
        explained(bar + RAISED + f"{bar}KeyError: 'later'\n")[0].headline
        == "a process failed with KeyError \"'cat'\""
    )


def test_each_process_may_have_a_prefix_of_its_own():
    text = "".join(
        f"{host}: {line}\n" for host in ("left", "right") for line in RAISED.replace("cat", host).splitlines()
    )
    assert explained(text)[0].headline == "a process failed with KeyError \"'left'\""
    lost = "".join(f"left: {line}\n" for line in RAISED.replace("KeyError: 'cat'", LOST.strip()).splitlines())
    right = "".join(f"right: {line}\n" for line in RAISED.splitlines())
    assert explained(lost + right)[0].headline == "a process failed with KeyError \"'cat'\""


def test_an_exception_whose_message_is_a_traceback_is_no_prefix():
    text = (
        RAISED.replace("KeyError: 'cat'", "RuntimeError: Traceback (most recent call last):") + RAISED + "\n"
    )
    kinds = [
        item.kind for item in log(text + RAISED.replace("KeyError: 'cat'", "RuntimeError: later")).raised
    ]
    assert kinds == ["KeyError", "RuntimeError"]

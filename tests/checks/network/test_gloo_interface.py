import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

INTERFACES = [
    {"name": "lo", "addresses": ["127.0.0.1"]},
    {"name": "eth0", "addresses": ["10.0.0.1"]},
    {"name": "ens1", "addresses": ["10.1.0.1"], "up": False},
    {"name": "ifb0", "addresses": []},
]


def host(value, **launch):
    return recorded_host(
        launch=Launch(**launch), environ={"GLOO_SOCKET_IFNAME": value}, interfaces=INTERFACES
    )


# Each value was given to the gloo of torch 2.13: it refused these, and took those of the next test.
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nosuch0", "names an interface that this machine does not have"),
        ("lo,nosuch0", "names 'nosuch0', which this machine does not have"),
        ("^docker0", "has NCCL's '^', which gloo reads as a part of the name"),
        ("=eth0", "has NCCL's '=', which gloo reads as a part of the name"),
        ("eth", "names 'eth', the beginning of eth0, and gloo needs whole names"),
        ("eth0, lo", "has a space around 'lo', which gloo reads as a part of the name"),
        ("lo,,eth0", "has an empty entry"),
        (",lo", "has an empty entry"),
        ("ifb0", "names ifb0, which has no address"),
    ],
)
def test_values_that_gloo_refuses(value, problem):
    finding = only_finding("DD702", Source.HOST, host(value))
    assert finding.level is Level.FAIL
    assert finding.headline == f"GLOO_SOCKET_IFNAME={value!r} {problem}"
    assert finding.fix == "unset GLOO_SOCKET_IFNAME; or: export GLOO_SOCKET_IFNAME=eth0"


@pytest.mark.parametrize("value", ["lo", "eth0", "lo,eth0", "lo,lo", "lo,", "ens1"])
def test_values_that_gloo_takes_on_one_node(value):
    passed("DD702", Source.HOST, host(value))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("lo", "names the loopback interface lo, and the job has 2 nodes"),
        ("ens1", "names ens1, which is down"),
    ],
)
def test_values_that_other_nodes_cannot_reach(value, problem):
    assert only_finding("DD702", Source.HOST, host(value, nnodes=2)).headline.endswith(problem)


def test_beside_nccl_it_is_a_warning():
    assert only_finding("DD702", Source.HOST, host("nosuch0", backend="nccl")).level is Level.WARN


def test_without_the_variable_it_is_skipped():
    assert "not set" in skipped("DD702", Source.HOST, recorded_host()).reason
    skipped("DD702", Source.HOST, host(""))

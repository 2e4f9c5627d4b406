from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

TWO_NODES = Launch(nproc=8, nnodes=2, backend="nccl")


def host(launch=TWO_NODES, environ=None, **ports):
    """Adapters by name: state, physical state, and how often the link was lost."""
    files = {}
    for device, (state, physical, downed) in ports.items():
        folder = f"/sys/class/infiniband/{device}/ports/1"
        files[f"{folder}/state"] = f"1: {state}\n"
        files[f"{folder}/phys_state"] = f"2: {physical}\n"
        files[f"{folder}/link_layer"] = "InfiniBand\n"
        files[f"{folder}/counters/link_downed"] = f"{downed}\n"
    return recorded_host(launch=launch, files=files, environ=environ or {})


UP = ("ACTIVE", "LinkUp", 0)
DROPPED = ("DOWN", "Polling", 4)


def test_a_port_that_was_up_and_is_down_is_a_warning():
    finding = only_finding("DD705", Source.HOST, host(mlx5_0=UP, mlx5_1=DROPPED))
    assert finding.level is Level.WARN
    assert finding.headline == "mlx5_1 port 1 is down and was up before"
    assert finding.evidence[0].text == "mlx5_1 port 1 (InfiniBand) is DOWN, Polling: link_downed 4"


def test_no_active_port_is_one_warning():
    finding = only_finding("DD705", Source.HOST, host(mlx5_0=DROPPED, mlx5_1=DROPPED))
    assert finding.headline == "none of 2 InfiniBand ports is active"


def test_a_port_without_a_subnet_manager():
    finding = only_finding("DD705", Source.HOST, host(mlx5_0=UP, mlx5_1=("INIT", "LinkUp", 0)))
    assert finding.headline == "mlx5_1 port 1 has a cable but is not configured (state INIT)"


def test_a_link_that_comes_and_goes_is_information():
    finding = only_finding("DD705", Source.HOST, host(mlx5_0=UP, mlx5_1=("ACTIVE", "LinkUp", 14)))
    assert finding.level is Level.INFO
    assert finding.headline == "mlx5_1 port 1 lost its link 14 times"


def test_unused_ports_stay_silent():
    never_up, disabled = ("DOWN", "Polling", 0), ("DOWN", "Disabled", 3)
    told = passed(
        "DD705",
        Source.HOST,
        host(mlx5_0=UP, mlx5_1=never_up, mlx5_2=disabled, mlx5_3=("ACTIVE", "LinkUp", 2)),
    )
    assert told.text == "2 of 4 InfiniBand ports active"


def test_a_port_that_nccl_is_told_to_leave_out_stays_silent():
    passed("DD705", Source.HOST, host(environ={"NCCL_IB_HCA": "^mlx5_1"}, mlx5_0=UP, mlx5_1=DROPPED))
    passed("DD705", Source.HOST, host(environ={"NCCL_IB_HCA": "=mlx5_0:1"}, mlx5_0=UP, mlx5_1=DROPPED))


def test_one_node_and_gloo_do_not_use_the_links():
    passed("DD705", Source.HOST, host(Launch(backend="nccl"), mlx5_0=DROPPED))
    passed("DD705", Source.HOST, host(Launch(nnodes=2), mlx5_0=DROPPED))


def test_network_cards_that_could_do_roce_stay_silent():
    passed("DD705", Source.HOST, recorded_host("ib", TWO_NODES))


def test_skips():
    assert "no InfiniBand" in skipped("DD705", Source.HOST, recorded_host()).reason
    disabled = host(environ={"NCCL_IB_DISABLE": "1"}, mlx5_0=DROPPED)
    assert skipped("DD705", Source.HOST, disabled).reason == "NCCL_IB_DISABLE is set"

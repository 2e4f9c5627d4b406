"""Simulated hosts and their GPUs, from the environment alone."""

from ddpdoctor.recorder.rehearse import simulated_hosts


def environment(rank, ranks, **more):
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0", **more}


def placed(rank, ranks, hosts):
    environ = environment(rank, ranks)
    simulated_hosts.divide(hosts, environ, ["train.py"])
    return environ["GROUP_RANK"], environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"]


def test_ranks_are_divided_in_order():
    assert [placed(rank, 4, 2) for rank in range(4)] == [
        ("0", "0", "2"),
        ("0", "1", "2"),
        ("1", "0", "2"),
        ("1", "1", "2"),
    ]
    assert [placed(rank, 3, 2) for rank in range(3)] == [("0", "0", "2"), ("0", "1", "2"), ("1", "0", "1")]


def test_one_host_changes_nothing():
    environ = environment(1, 2)
    assert simulated_hosts.divide(1, environ, ["train.py"]) == {}
    assert environ == environment(1, 2)


def test_a_child_of_a_rank_is_not_divided_again():
    environ = environment(3, 4)
    simulated_hosts.divide(2, environ, ["train.py"])
    first = dict(environ)
    simulated_hosts.divide(2, environ, ["train.py"])
    assert environ == first


def test_the_variables_come_back():
    environ = environment(3, 4)
    simulated_hosts.restore(simulated_hosts.divide(2, environ, ["train.py"]), environ)
    assert environ == environment(3, 4)


def test_a_launch_over_several_hosts_keeps_them():
    environ = environment(1, 2, GROUP_WORLD_SIZE="2")
    assert simulated_hosts.divide(2, environ, ["train.py"]) == {}


def test_the_local_rank_in_the_arguments_follows():
    argv = ["train.py", "--local-rank=3", "--local_rank=3", "--lr=3"]
    simulated_hosts.divide(2, environment(3, 4), argv)
    assert argv == ["train.py", "--local-rank=1", "--local_rank=1", "--lr=3"]


def test_one_gpu_for_each_local_rank():
    assert simulated_hosts.Host(environment(0, 3)).gpus() == ["0", "1", "2"]
    assert simulated_hosts.Host({simulated_hosts.NPROC: "2"}).gpus() == ["0", "1"]
    assert simulated_hosts.Host({}).gpus() == ["0"]


def test_a_script_that_hides_gpus_sees_the_others_by_their_own_number():
    environ = environment(1, 2)
    host = simulated_hosts.Host(environ)
    environ["CUDA_VISIBLE_DEVICES"] = "1"
    assert host.gpus() == ["1"]
    host.take()
    environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    assert host.gpus() == ["1"]


def test_gpus_hidden_from_the_start_are_there_all_the_same():
    assert simulated_hosts.Host(environment(0, 2, CUDA_VISIBLE_DEVICES="")).gpus() == ["0", "1"]
    assert simulated_hosts.Host(environment(0, 2, CUDA_VISIBLE_DEVICES="-1")).gpus() == ["0", "1"]

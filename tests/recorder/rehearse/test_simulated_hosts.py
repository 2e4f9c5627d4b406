"""Simulated hosts and their GPUs, from the environment alone."""

from ddpdoctor.recorder.rehearse import simulated_hosts


def environment(rank, ranks, **more):
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0", **more}


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

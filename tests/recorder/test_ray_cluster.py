"""ray.init on a running cluster: what its workers are started with."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.recorder.patches.frameworks import watch_ray_init


@pytest.fixture(name="init")
def patched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Mapping[str, Any]]:
    """ray.init as the recorder leaves it: gives back with which options it was called."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("DDPDOCTOR_RECORD", "/shared/record")
    return watch_ray_init(lambda *args, **kwargs: kwargs)


def test_where_ray_starts_itself_its_processes_inherit_the_recorder(init, monkeypatch) -> None:
    assert init(num_cpus=3) == {"num_cpus": 3}
    monkeypatch.setenv("RAY_ADDRESS", "node0:6379")
    assert init("local") == {}
    assert init(address="local") == {"address": "local"}


@pytest.mark.parametrize("given", [("auto",), ("ray://node0:10001",)])
def test_the_workers_of_a_running_cluster_get_it(init, given: tuple[str, ...]) -> None:
    variables = init(*given)["runtime_env"]["env_vars"]
    assert variables["DDPDOCTOR_RECORD"] == "/shared/record"
    inject, *others = variables["PYTHONPATH"].split(os.pathsep)
    assert Path(inject, "sitecustomize.py").is_file()
    assert others == ["${PYTHONPATH}"]


def test_what_the_user_gives_is_kept(init, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "node0:6379")
    given = {"working_dir": ".", "env_vars": {"PYTHONPATH": "/src", "NCCL_DEBUG": "INFO"}}
    runtime_env = init(runtime_env=given)["runtime_env"]
    assert given["env_vars"] == {"PYTHONPATH": "/src", "NCCL_DEBUG": "INFO"}
    assert runtime_env["working_dir"] == "."
    assert runtime_env["env_vars"]["NCCL_DEBUG"] == "INFO"
    assert runtime_env["env_vars"]["PYTHONPATH"].endswith(f"{os.pathsep}/src")


def test_what_is_no_mapping_is_left_to_ray(init) -> None:
    assert init("auto", runtime_env=7) == {"runtime_env": 7}

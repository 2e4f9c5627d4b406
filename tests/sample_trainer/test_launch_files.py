"""The files in sample_trainer/launch, as far as a machine without Slurm, Kubernetes or Windows can tell."""

import os
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import ROOT, SECONDS, environment

LAUNCH = ROOT / "sample_trainer" / "launch"
TRAINER = ROOT / "sample_trainer" / "trainer.py"
FAKE = "#!/bin/sh\n"


@pytest.mark.parametrize("name", ["train.sh", "train.slurm"])
def test_a_shell_script_is_sound(name):
    subprocess.run(["bash", "-n", LAUNCH / name], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", LAUNCH / name], check=True)


def programs(folder: Path, **scripts: str) -> str:
    """A PATH on which these programs come first; torchrun is this Python's."""
    folder.mkdir()
    torchrun = f'exec {sys.executable} -m torch.distributed.run "$@"\n'
    for name, text in {"torchrun": torchrun, **scripts}.items():
        (folder / name).write_text(FAKE + text)
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def run(name: str, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", LAUNCH / name, *arguments],
        cwd=cwd,
        env={**environment(variables), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def words(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(("gpus", "nproc"), [("echo GPU 0; echo GPU 1; echo GPU 2", "3"), ("exit 9", "2")])
def test_the_shell_script_starts_a_rank_for_each_gpu(tmp_path, gpus, nproc):
    path = programs(tmp_path / "bin", **{"torchrun": 'echo "$@"', "nvidia-smi": gpus})
    started = words(run("train.sh", "train.epochs=1", cwd=tmp_path, PATH=path))
    assert started[:3] == ["--standalone", "--nproc-per-node", nproc]
    assert Path(started[3]).resolve() == TRAINER
    assert started[4:] == ["train.epochs=1"]
    given = words(run("train.sh", cwd=tmp_path, PATH=path, NPROC="5", TRAINER="mine.py"))
    assert given == ["--standalone", "--nproc-per-node", "5", "mine.py"]


def torchruns(arguments: list[str]) -> Namespace:
    """What torchrun's own parser makes of them."""
    run = pytest.importorskip("torch.distributed.run")
    parsed: Namespace = run.parse_args(arguments)
    return parsed


def slurm(tmp_path: Path, srun: str, **variables: str) -> dict[str, str]:
    path = programs(
        tmp_path / "bin", srun=srun, scontrol='[ "$2" = hostnames ] && echo 127.0.0.1 && echo node-b'
    )
    return {
        "PATH": path, "SLURM_JOB_ID": "41234", "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_CPUS_PER_TASK": "2", "SLURM_SUBMIT_DIR": str(tmp_path),
        "TRAINER": str(TRAINER), **variables,
    }  # fmt: skip


def test_the_slurm_script_asks_for_what_its_nodes_have(tmp_path):
    variables = slurm(tmp_path, 'echo "$OMP_NUM_THREADS $SRUN_CPUS_PER_TASK $@"')
    started = words(
        run(
            "train.slurm",
            "a=b",
            cwd=tmp_path,
            **{**variables, "SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "16"},
        )
    )
    assert started[:5] == ["4", "16", "--kill-on-bad-exit=1", "--label", "torchrun"]
    parsed = torchruns(started[5:])
    assert (parsed.nnodes, parsed.nproc_per_node) == ("2", "4")
    assert (parsed.rdzv_backend, parsed.rdzv_endpoint, parsed.rdzv_id) == ("c10d", "127.0.0.1:21234", "41234")
    assert (parsed.training_script, parsed.training_script_args) == (str(TRAINER), ["a=b"])


def test_slurm_starts_one_task_for_each_node_of_those_it_asks_for():
    options = dict(
        re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", (LAUNCH / "train.slurm").read_text(), re.MULTILINE)
    )
    assert options["ntasks-per-node"] == "1"
    assert int(options["nodes"]) > 1
    assert set(options) <= {
        "job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "output",
    }  # fmt: skip


# -- Kubernetes --------------------------------------------------------------------------------------------------

SERVICE, JOB = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
POD = JOB["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
FIELDS: dict[str, set[str]] = {
    "object": {"apiVersion", "kind", "metadata", "spec"},
    "service": {"clusterIP", "publishNotReadyAddresses", "selector", "ports"},
    "job": {"completionMode", "completions", "parallelism", "backoffLimit", "template"},
    "pod": {"subdomain", "restartPolicy", "containers", "volumes"},
    "container": {"name", "image", "workingDir", "command", "args", "resources", "volumeMounts"},
}
"""Those of the API's fields that are used, as its reference spells them."""
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def argument(name: str) -> str:
    return next(one.partition("=")[2] for one in CONTAINER["args"] if one.startswith(f"--{name}="))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("object", SERVICE), ("object", JOB), ("service", SERVICE["spec"]), ("job", JOB["spec"]),
        ("pod", POD["spec"]), ("container", CONTAINER),
    ],
    ids=["service", "job", "service spec", "job spec", "pod spec", "container"],
)  # fmt: skip
def test_every_field_of_the_manifest_is_one_of_the_api(kind: str, value: dict[str, Any]):
    assert set(value) == FIELDS[kind]


def test_the_versions_are_those_of_the_kinds():
    assert [(one["apiVersion"], one["kind"]) for one in (SERVICE, JOB)] == [
        ("v1", "Service"),
        ("batch/v1", "Job"),
    ]


def test_the_service_is_headless_and_finds_the_pods():
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert SERVICE["spec"]["publishNotReadyAddresses"] is True
    assert SERVICE["spec"]["selector"].items() <= POD["metadata"]["labels"].items()
    assert POD["spec"]["subdomain"] == SERVICE["metadata"]["name"]
    assert all(DNS_LABEL.fullmatch(one["metadata"]["name"]) for one in (SERVICE, JOB))


def test_all_pods_run_at_once_and_a_lost_one_ends_the_job():
    spec = JOB["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(argument("nnodes"))
    assert spec["backoffLimit"] == 0
    assert POD["spec"]["restartPolicy"] == "Never"


def test_ranks_meet_at_pod_0_under_the_name_that_kubernetes_gives_it():
    pod, _, service = argument("master-addr").partition(".")
    assert (pod, service) == (f"{JOB['metadata']['name']}-0", SERVICE["metadata"]["name"])
    assert int(argument("master-port")) == SERVICE["spec"]["ports"][0]["port"]
    assert argument("node-rank") == "$(JOB_COMPLETION_INDEX)"


def test_each_rank_has_its_gpu_and_every_mount_its_volume():
    assert int(argument("nproc-per-node")) == CONTAINER["resources"]["limits"]["nvidia.com/gpu"]
    mounted = {one["name"] for one in CONTAINER["volumeMounts"]}
    assert mounted == {one["name"] for one in POD["spec"]["volumes"]}
    assert "/dev/shm" in {one["mountPath"] for one in CONTAINER["volumeMounts"]}


def test_the_configuration_is_a_bundled_one():
    assert (TRAINER.parent / "configs" / Path(argument("config")).name).exists()


def test_torchrun_takes_the_arguments():
    given = [one.replace("$(JOB_COMPLETION_INDEX)", "1") for one in CONTAINER["args"]]
    parsed = torchruns(given)
    assert (parsed.nnodes, parsed.nproc_per_node, parsed.node_rank) == ("2", "4", 1)
    assert parsed.training_script == "/workspace/trainer.py"
    assert parsed.training_script_args == given[given.index("/workspace/trainer.py") + 1 :]

"""Runs the cases on one cluster, and compares what ddpdoctor says with what is planted.

python -m tests.slurm [CASE...]     # as root, from the repository's root
"""

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.several_hosts.__main__ import SECONDS, wait_for
from tests.several_hosts.cases import LOST, NAMED_WITHIN, SCRIPT, cut, kill
from tests.slurm.cluster import PACKAGES, PROGRAMS, SlurmCluster
from tests.support.command import ROOT
from tests.support.expectations import differences
from tests.support.namespaces import HostsBed
from tests.untouched.support import state

DDPDOCTOR = (sys.executable, "-m", "ddpdoctor")
CHECK = ("check", "--nproc", "2", "--quiet", "--format", "json", "--output", "report.json")
ONE_EACH = ("srun", "--nodes", "2", "--ntasks-per-node", "1", "--cpus-per-task", "2")
IN_OWN_FOLDER = ("sh", "-c", 'cd "$SLURMD_NODENAME" && exec "$@"', "sh")
"""A node that is cut off takes the others for lost, and reports that where it can still write."""
TASKS = ("srun", "--nodes", "2", "--ntasks-per-node", "2", "--cpus-per-task", "1")
_AS_RANKS = """\
import os, runpy, sys
environ = os.environ
for name, of_slurm in {"RANK": "PROCID", "WORLD_SIZE": "NTASKS", "LOCAL_RANK": "LOCALID"}.items():
    environ[name] = environ[f"SLURM_{of_slurm}"]
environ.update(LOCAL_WORLD_SIZE="2", MASTER_ADDR="node0", MASTER_PORT="20777")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A script that takes its ranks from Slurm's variables, before the training script begins."""
_SAVES = """\
import os, runpy, sys
import torch
runpy.run_path(sys.argv[1], run_name="__main__")
torch.save({}, f"rank-{os.environ['RANK']}.pt")
if os.environ["RANK"] == "3":
    torch.save({}, "best.pt")
"""
_SBATCH = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --output=job.out --time=5
srun {command}
"""


def by_srun(cluster: SlurmCluster, folder: Path) -> str:
    """``srun ddpdoctor check train.py``, once on each node: no option of the launch."""
    words = [*ONE_EACH, *DDPDOCTOR, *CHECK, "--select", "host,group,run", str(SCRIPT)]
    return told(cluster, words, folder, {})


def fault_by_srun(cluster: SlurmCluster, folder: Path) -> str:
    """A rank of the second node leaves the loop."""
    words = [*ONE_EACH, *DDPDOCTOR, *CHECK, "--select", "run", str(SCRIPT), "leaves_the_loop"]
    return told(cluster, words, folder, {"DD308": "rank 3 on node1 "})


def in_sbatch(cluster: SlurmCluster, folder: Path) -> str:
    """The one line in a script for sbatch."""
    command = [*DDPDOCTOR, *CHECK, "--select", "run", str(SCRIPT), "raises"]
    (folder / "job.sbatch").write_text(_SBATCH.format(command=" ".join(command)))
    return told(
        cluster,
        ["sbatch", "--wait", "job.sbatch"],
        folder,
        {"DD304": "rank 2 on node1 failed with ValueError"},
    )


def line_of_srun(cluster: SlurmCluster, folder: Path) -> str:
    """``ddpdoctor check -- srun python train.py``: the ranks are srun's tasks, their records on a shared disk."""
    return told_of_line(cluster, folder, ["leaves_the_loop"], {"DD308": "rank 3 on node1 "})


def srun_in_a_shell_script(cluster: SlurmCluster, folder: Path) -> str:
    """The same in a script, of whose tasks the files are undone though Slurm's daemon starts them outside the view."""
    (folder / "ranks.py").write_text(_AS_RANKS)
    (folder / "saves.py").write_text(_SAVES)
    (folder / "best.pt").write_text("earlier")
    line = [*TASKS, sys.executable, "ranks.py", "saves.py", str(SCRIPT)]
    (folder / "run.sh").write_text(f"echo begins > shell.txt\n{shlex.join(line)}\n")
    before = state(folder)
    words = [*DDPDOCTOR, *CHECK, "--select", "run", "--", "sh", "run.sh"]
    problem = told(cluster, words, folder, {}, env={"OMP_NUM_THREADS": "1"})
    notes = json.loads((folder / "report.json").read_text())["notes"]
    (folder / "report.json").unlink()
    after = state(folder)
    changed = [path for path in before | after if path != "." and before.get(path) != after.get(path)]
    named = any(
        "does not reach processes that another program started on node0, node1" in note for note in notes
    )
    return problem or (f"changed: {changed}; {notes}" if changed or not named else "")


def over_memory(cluster: SlurmCluster, folder: Path) -> str:
    """A task takes more memory than its step has."""
    expected = {"DD017": "a scheduler or supervisor ended the job because of its memory"}
    return told_of_line(cluster, folder, ["takes_memory"], expected, "--mem", "1500M")


def at_time_limit(cluster: SlurmCluster, folder: Path) -> str:
    """A job does not end in its time, which takes more than a minute: Slurm looks at it now and then."""
    expected = {"DD012": "the scheduler ended the job: DUE TO TIME LIMIT"}
    return told_of_line(cluster, folder, ["goes_on"], expected, "--time", "1")


def host_dies(cluster: SlurmCluster, folder: Path) -> str:
    """All processes of the second node are killed, its slurmd too."""
    return told_of_loss(cluster, folder, kill)


def host_is_cut(cluster: SlurmCluster, folder: Path) -> str:
    """Its cable is pulled."""
    return told_of_loss(cluster, folder, cut)


def told_of_loss(cluster: SlurmCluster, folder: Path, loses: Callable[[HostsBed, int], None]) -> str:
    """What is wrong with the report on a job that loses the second node; srun itself waits longer for it."""
    for node in ("node0", "node1"):
        (folder / node).mkdir()
    words = [*ONE_EACH, *IN_OWN_FOLDER, *DDPDOCTOR, *CHECK, "--select", "run", str(SCRIPT), "slow"]
    process = cluster.start(words, folder, {"SCRATCH": str(folder)})
    began = wait_for(folder / "trains")
    loses(cluster.bed, 1)
    report = ""
    while not report.endswith("}\n") and time.monotonic() < began + NAMED_WITHIN:
        time.sleep(0.1)
        report = (folder / "node0" / "report.json").read_text()
    cluster.mend(1)
    out, err = process.communicate(timeout=SECONDS)
    problems = differences(report, LOST, SCRIPT)
    return "; ".join([*problems, (out + err)[-2000:]] if problems else [])


def told_of_line(
    cluster: SlurmCluster, folder: Path, arguments: list[str], expected: dict[str, str], *options: str
) -> str:
    """What is wrong with the report on a script whose ranks are srun's tasks; empty where it is as expected."""
    (folder / "ranks.py").write_text(_AS_RANKS)
    line = [*TASKS, *options, sys.executable, "ranks.py", str(SCRIPT), *arguments]
    words = [*DDPDOCTOR, *CHECK, "--select", "run", "--", *line]
    return told(cluster, words, folder, expected, env={"OMP_NUM_THREADS": "1"})


def tasks_are_refused(cluster: SlurmCluster, folder: Path) -> str:
    """srun starts the command twice on each node."""
    _, _, err = cluster.run([*TASKS, *DDPDOCTOR, *CHECK, "--select", "group"], folder)
    return "" if "srun starts this command 4 times on 2 nodes" in err else err


def contradiction(cluster: SlurmCluster, folder: Path) -> str:
    """RANK is exported in the shell from which srun is called."""
    words = [*ONE_EACH, *DDPDOCTOR, *CHECK, "--select", "DD001"]
    return told(cluster, words, folder, {"DD001": "RANK=7 "}, env={"RANK": "7", "WORLD_SIZE": "8"})


def prolog_keeps_a_bad_node_out(cluster: SlurmCluster, folder: Path) -> str:
    """templates/slurm-prolog.sh: node1 has no interface for gloo; it is drained, and the job runs on node0."""
    wrapper = folder / "ddpdoctor"
    fault = '[ "$(hostname)" = node1 ] && export GLOO_SOCKET_IFNAME=nosuch0'
    wrapper.write_text(f'#!/bin/sh\n{fault}\nexec {shlex.join(DDPDOCTOR)} "$@"\n')
    wrapper.chmod(0o755)
    environ = f"PATH={shlex.quote(os.environ['PATH'])} SLURM_CONF={cluster.folder}/slurm.conf"
    commands = f"export {environ} PYTHONPATH={ROOT} DDPDOCTOR={wrapper} SECONDS_AT_MOST=300\ncd {folder}"
    cluster.set_prolog(f"{commands}\nexec {ROOT}/templates/slurm-prolog.sh")
    try:
        _, healthy, _ = cluster.run(["srun", "--nodelist", "node0", "hostname"], folder)
        cluster.run(["srun", "--nodelist", "node1", "--immediate=30", "hostname"], folder, seconds=120)
        _, reasons, _ = cluster.run(["sinfo", "--noheader", "--format", "%n %T %E"], folder)
        _, other, _ = cluster.run(["srun", "--nodes", "1", "hostname"], folder)
    finally:
        cluster.set_prolog("")
        cluster.run(["scancel", "--me"], folder)
        cluster.run(["scontrol", "update", "NodeName=node1", "State=RESUME"], folder)
    drained = [line for line in reasons.splitlines() if "node1 drain" in line and "ddpdoctor: DD702" in line]
    as_expected = drained and "node0 idle" in reasons and healthy == other == "node0\n"
    return "" if as_expected else f"{healthy!r} {other!r} {reasons}"


CASES: dict[str, Callable[[SlurmCluster, Path], str]] = {
    case.__name__: case
    for case in (
        *(by_srun, fault_by_srun, in_sbatch, line_of_srun, srun_in_a_shell_script, over_memory),
        *(at_time_limit, tasks_are_refused),
        *(contradiction, prolog_keeps_a_bad_node_out, host_dies, host_is_cut),
    )
}


def told(cluster: SlurmCluster, words: list[str], folder: Path, expected: dict[str, str], **run: Any) -> str:
    """What is wrong with the report of a command; empty where it is as expected."""
    status, out, err = cluster.run(words, folder, **run)
    report = folder / "report.json"
    problems = differences(report.read_text() if report.exists() else "", expected, SCRIPT)
    if bool(status) != bool(expected) or problems:
        problems += [f"exit status {status}: {(out + err)[-2000:]}"]
    return "; ".join(problems)


def main() -> int:
    """Run the cases that are named, or all; the exit status."""
    if not SlurmCluster.is_installed():
        print(f"needs {', '.join(PROGRAMS)}: apt-get install --no-install-recommends {PACKAGES}")
        return 2
    wrong = []
    with SlurmCluster() as cluster:
        for name in sys.argv[1:] or CASES:
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                problem = CASES[name](cluster, Path(folder))
            print(f"{name:20} {time.monotonic() - began:6.1f} s  {problem or 'as expected'}", flush=True)
            wrong += [name] if problem else []
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

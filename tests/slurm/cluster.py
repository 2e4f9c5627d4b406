"""A Slurm cluster on this machine: munged, slurmctld, a slurmd on each of some hosts in namespaces.

Needs root and some of Debian's packages: apt-get install --no-install-recommends PACKAGES
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.several_hosts.cases import kill
from tests.support.command import ROOT, environment
from tests.support.namespaces import HostsBed

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "srun", "sbatch")
PACKAGES = "slurm-wlm munge"
SECONDS = 20.0
"""For the daemons to come up."""
_CONFIGURATION = """\
ClusterName=bed
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={sockets}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
ReturnToService=2
KillWait=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
NodeName=node[0-{last}] CPUs=2 RealMemory=4000 State=UNKNOWN
Prolog={folder}/prolog.sh
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""
_CGROUPS = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
"""None: slurmd looks for them in any case, and the namespace of a host has none."""


class SlurmCluster:
    """A cluster of so many nodes; a context manager that leaves nothing of it."""

    def __init__(self, nodes: int = 2) -> None:
        self.bed = HostsBed(nodes)
        self.folder = Path(tempfile.mkdtemp(prefix="ddpdoctor-slurm-"))
        # Where munged has it: what a shell script starts in a private view reaches the sockets in /run.
        self.sockets = Path(tempfile.mkdtemp(prefix="ddpdoctor-slurm-", dir="/run"))
        self._left = ExitStack()

    @staticmethod
    def is_installed() -> bool:
        """Whether Slurm's programs are there."""
        return all(shutil.which(program) for program in PROGRAMS)

    def __enter__(self) -> "SlurmCluster":
        for folder in (self.folder, self.sockets):
            self._left.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            self._left.enter_context(self.bed)
            self._start()
        except BaseException:
            self._left.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._left.close()

    def start(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command of Slurm's on the first node."""
        return self.bed.start(0, words, cwd, {**self._environ, "PYTHONPATH": str(ROOT), **(env or {})})

    def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, seconds: float = 300.0
    ) -> tuple[int, str, str]:
        """Run one to its end: its status and what it said."""
        process = self.start(words, cwd, env)
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err

    @property
    def _environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def _start(self) -> None:
        for folder in (self.folder, self.sockets):
            folder.chmod(0o755)
        (self.folder / "state").mkdir()
        configuration = _CONFIGURATION.format(
            folder=self.folder, sockets=self.sockets, last=self.bed.count - 1
        )
        (self.folder / "slurm.conf").write_text(configuration)
        self.set_prolog("")
        (self.folder / "cgroup.conf").write_text(_CGROUPS)
        self._start_munge()
        self.bed.start(0, ["slurmctld", "-D"], self.folder, self._environ)
        for number in range(self.bed.count):
            (self.folder / f"spool.node{number}").mkdir()
            self._start_node(number)
        self._wait_until_idle()

    def mend(self, number: int) -> None:
        """Have a node again whose processes were killed or whose cable was pulled, and no job."""
        self.run(["scancel", "--me"], self.folder)
        kill(self.bed, number)
        self.bed.mend(number)
        self._start_node(number)
        self._wait_until_idle()

    def set_prolog(self, commands: str) -> None:
        """What each node runs before a job."""
        (self.folder / "prolog.sh").write_text(f"#!/bin/sh\n{commands}\n")
        (self.folder / "prolog.sh").chmod(0o755)

    def _start_node(self, number: int) -> None:
        self.bed.start(number, ["slurmd", "-D", "-N", f"node{number}"], self.folder, self._environ)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        subprocess.run(["mungekey", "--create", f"--keyfile={key}"], check=True)
        files = {"key-file": "munge.key", "socket": self.sockets / "munge.socket", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{name}={self.folder / file}" for name, file in files.items()]
        # In the foreground it would write to a terminal; its folder is not root's alone.
        process = subprocess.Popen(["munged", "--foreground", "--force", *options], env=environment({}))
        self._left.callback(process.wait)
        self._left.callback(process.terminate)

    def _wait_until_idle(self) -> None:
        states = ["sinfo", "--noheader", "--Node", "--format", "%T"]
        self._wait_for("the nodes", states, "idle\n" * self.bed.count)

    def _wait_for(self, what: str, words: Sequence[str], wanted: str) -> None:
        """Wait until a command prints what is wanted."""
        end, answer = time.monotonic() + SECONDS, ""
        while time.monotonic() < end:
            _, out, err = self.run(words, self.folder)
            if wanted in out:
                return
            answer = out + err
            time.sleep(0.5)
        logs = "\n".join(file.read_text()[-2000:] for file in sorted(self.folder.glob("*.log")))
        raise TimeoutError(f"{what}: {answer}\n{logs}")

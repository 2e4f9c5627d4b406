"""Runs the cases on one cluster, and compares what ddpdoctor says with what is planted.

python -m tests.ray_cluster [CASE...]     # as root, from the repository's root
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.several_hosts.__main__ import wait_for
from tests.several_hosts.cases import kill
from tests.support.command import ROOT
from tests.support.expectations import differences
from tests.support.namespaces import HostsBed

SCRIPT = Path(__file__).with_name("train.py")
PORT = 6379
SECONDS = 300.0
"""For one case."""
START_SECONDS = 120.0
BY_HAND = "hang_by_hand"
HOST_DIES = "host_dies"
CASES = {
    "right": {},
    "not_sharded": {"DD101": ""},
    "blocks": {"DD307": "rank 1 on node"},
    BY_HAND: {"DD307": "rank 1 "},
    HOST_DIES: {"DD315": "host node1 (rank "},
}
"""The beginning of the headline of each finding above info, by code."""


class RayCluster:
    """Ray on the hosts of a bed, with a folder for all that it writes."""

    def __init__(self, bed: HostsBed, folder: Path) -> None:
        self.bed, self.folder = bed, folder
        self.environ = {"TMPDIR": str(self.folder), "RAY_ADDRESS": f"{bed.addresses[0]}:{PORT}"}
        self.environ |= {
            "PYTHONPATH": str(ROOT),
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_AUTH_MODE": "disabled",
        }

    def start(self) -> None:
        """Start its processes, and wait until all hosts are there."""
        for number in range(self.bed.count):
            self._start_host(number)
            self._wait_for(number + 1)

    def mend(self, number: int) -> None:
        """Have a host again whose processes were killed."""
        self._wait_for(self.bed.count - 1)
        self._start_host(number)
        self._wait_for(self.bed.count)

    def _start_host(self, number: int) -> None:
        head = ("--head", "--port", str(PORT), "--include-dashboard", "false", "--temp-dir", str(self.folder))
        place = head if number == 0 else ("--address", self.environ["RAY_ADDRESS"])
        usual = ("--block", "--num-cpus", "2", "--object-store-memory", "100000000", "--disable-usage-stats")
        words = self._ray("start", *place, "--node-ip-address", self.bed.addresses[number], *usual)
        self.bed.start(number, words, self.folder, {**self.environ, "RAY_ADDRESS": ""})

    def _wait_for(self, count: int) -> None:
        end, status = time.monotonic() + START_SECONDS, ""
        while time.monotonic() < end:
            words = self._ray("status", "--address", self.environ["RAY_ADDRESS"])
            status, _ = self.bed.start(0, words, self.folder, self.environ).communicate(timeout=60)
            if status.partition("Pending:")[0].count(" node_") == count:
                return
            time.sleep(1)
        raise TimeoutError(f"{count} hosts did not come: {status}")

    @staticmethod
    def _ray(*words: str) -> list[str]:
        return [sys.executable, "-m", "ray.scripts.scripts", *words]


def wrong(cluster: RayCluster, name: str, expected: dict[str, str]) -> str:
    """What is wrong with the report on a program; empty where it is as expected."""
    if name == BY_HAND:
        return wrong_of_hang(cluster, expected)
    return (wrong_of_loss if name == HOST_DIES else wrong_of_check)(cluster, name, expected)


def wrong_of_check(cluster: RayCluster, fault: str, expected: dict[str, str]) -> str:
    """The same of a program that ``check`` runs."""
    limit = ("--timeout", "90") if fault == "blocks" else ()
    process = start(cluster, ["check", "--select", "run", *limit], ["--", sys.executable, str(SCRIPT), fault])
    return wrong_report(cluster, process, expected)


def wrong_of_loss(cluster: RayCluster, _: str, expected: dict[str, str]) -> str:
    """The same of one that trains while all processes of the second host are killed, Ray's too."""
    stands = cluster.folder / "trains"
    words = ["--", sys.executable, str(SCRIPT), "slow"]
    process = start(cluster, ["check", "--select", "run"], words, {"STANDS": str(stands)})
    wait_for(stands)
    kill(cluster.bed, 1)
    problem = wrong_report(cluster, process, expected)
    cluster.mend(1)
    return problem


def wrong_of_hang(cluster: RayCluster, expected: dict[str, str]) -> str:
    """The same of one that hangs and that nobody records, by ``hang`` on the host of a worker."""
    stands = cluster.folder / "stands"
    words = [sys.executable, str(SCRIPT), "blocks"]
    program = cluster.bed.start(0, words, cluster.folder, {**cluster.environ, "STANDS": str(stands)})
    end = time.monotonic() + SECONDS
    while not stands.exists() and program.poll() is None and time.monotonic() < end:
        time.sleep(0.5)
    time.sleep(2)  # for the other rank to come to its all-reduce
    # Other jobs of this machine are no other host's for it: only the network is.
    workers = [
        pid for pid in cluster.bed.pids(0) if b"RayTrainWorker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    problem = wrong_report(cluster, start(cluster, ["hang", *map(str, workers)]), expected)
    program.terminate()
    program.communicate(timeout=SECONDS)
    return problem


def start(
    cluster: RayCluster, words: Sequence[str], rest: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start a command on the first host, whose report is in ``report.json``."""
    report = cluster.folder / "report.json"
    report.unlink(missing_ok=True)
    usual = ("--quiet", "--format", "json", "--output", str(report))
    return cluster.bed.ddpdoctor(
        0, [*words, *usual, *rest], cluster.folder, {**cluster.environ, **(env or {})}
    )


def wrong_report(cluster: RayCluster, process: "subprocess.Popen[str]", expected: dict[str, str]) -> str:
    """What is wrong with the report of a command; empty where it is as expected."""
    out, err = process.communicate(timeout=SECONDS)
    report = cluster.folder / "report.json"
    problems = differences(report.read_text() if report.exists() else "", expected, SCRIPT)
    if process.returncode != int(bool(expected)) or problems:  # 2 where no rank was recorded
        problems += [f"exit status {process.returncode}: {(out + err)[-3000:]}"]
    return "; ".join(problems)


def main() -> int:
    """Run the cases that are named, or all; the exit status."""
    if find_spec("ray") is None:
        print("needs Ray: pip install 'ray[train]'")
        return 2
    problems = []
    # Ray makes sockets below it, whose paths must be short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, HostsBed(2) as bed:
        cluster = RayCluster(bed, Path(folder))
        cluster.start()
        for name in sys.argv[1:] or CASES:
            began = time.monotonic()
            problem = wrong(cluster, name, CASES[name])
            problems += [problem] if problem else []
            print(f"{name:20} {time.monotonic() - began:6.1f} s  {problem or 'as expected'}", flush=True)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

"""Runs the cases, each on hosts of its own, and compares what their report says with what is planted.

python -m tests.several_hosts [CASE...]     # as root, from the repository's root
"""

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.several_hosts.cases import CASES, Case
from tests.support.expectations import differences
from tests.support.namespaces import HostsBed
from tests.untouched.support import state

SECONDS = 240.0
"""For a script to begin to train."""


def main() -> int:
    """Run the cases that are named, or all; the exit status."""
    wrong = [name for name in sys.argv[1:] or CASES if not passes(name, CASES[name])]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all cases are as expected")
    return int(bool(wrong))


def passes(name: str, case: Case) -> bool:
    """Run a case, print what came of it, and say whether it is as expected."""
    resolves = dict([case.resolves]) if case.resolves else {}
    with tempfile.TemporaryDirectory() as folder, HostsBed(case.hosts, resolves) as bed:
        if case.prepares is not None:
            case.prepares(bed)
        for file in ("best.pt", "history.csv", "gone.txt"):
            Path(folder, file).write_text("earlier")
        began, commands = time.monotonic(), start(case, bed, Path(folder))
        before = state(Path(folder))
        if case.loses is not None:
            began = wait_for(Path(folder, "trains"))
            case.loses(bed, case.lost)
        there = [host for host in range(case.hosts) if case.loses is None or host != case.lost]
        ended = {host: commands[host].communicate(timeout=case.seconds) for host in commands if host in there}
        seconds = time.monotonic() - began
        left = [bed.pids(host) for host in there]
        after = state(Path(folder))
    statuses = {host: commands[host].returncode for host in ended}
    problems = differences(ended[case.reported_by][0], case.expected, case.script)
    if len({*statuses.values()}) > 1:
        problems.append(f"exit statuses {statuses}")
    if any(left):
        problems.append(f"processes left: {left}")
    if case.loses is None and case.command == "check" and after != before:
        problems.append(
            f"files changed: {[path for path in before | after if before.get(path) != after.get(path)]}"
        )
    if case.loses is not None and seconds > case.within:
        problems.append(f"named after {seconds:.1f} s")
    print(f"{name:22} {seconds:6.1f} s  {'as expected' if not problems else '; '.join(problems)}", flush=True)
    if problems:
        print(*(text[-1500:] for said in ended.values() for text in said), sep="\n")
    return not problems


def start(case: Case, bed: HostsBed, folder: Path) -> "dict[int, subprocess.Popen[str]]":
    """Start the command on each host, on which the folder ``own`` is a disk of its own."""
    (folder / "own").mkdir()
    limit = ("--timeout", str(case.timeout)) if case.command == "check" else ()
    usual = (*limit, "--quiet", "--format", "json")
    command = (sys.executable, "-m", "ddpdoctor", case.command)
    if case.launch is None:
        words = [*mpirun(bed, folder), *command, *usual, "--nproc", "2", *case.words]
        return {0: bed.start(0, words, folder, {"SCRATCH": str(folder)})}
    commands = {}
    for host in range(case.hosts):
        if host != case.absent:
            launch, environ = case.launch(bed, host)
            words = [*command, *launch, *usual, *case.words]
            own = f'mount -t tmpfs none {folder}/own && echo "$OWN" > {folder}/own/config'
            own += ' && eval "${MOUNT:-true}" && exec "$@"'
            mounted = ["sh", "-c", own, "sh", *words]
            commands[host] = bed.start(host, mounted, folder, {"SCRATCH": str(folder), **environ})
    return commands


def mpirun(bed: HostsBed, folder: Path) -> list[str]:
    """Open MPI's mpirun, which starts its daemons on the other hosts by this agent instead of ssh."""
    agent, names = folder / "agent", ",".join(f"node{host}" for host in range(bed.count))
    cases = "".join(
        f'node{host}) exec {shlex.join(bed.command(host, ["sh", "-c"]))} "$*";;\n'
        for host in range(bed.count)
    )
    agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}esac\n")
    agent.chmod(0o755)
    options = ("--allow-run-as-root", "--mca", "plm_rsh_agent", str(agent), "--host", names)
    return ["mpirun", *options, "-N", "1"]


def wait_for(file: Path) -> float:
    """Wait until a file is there, and a little longer; the time."""
    end = time.monotonic() + SECONDS
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1)
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main())

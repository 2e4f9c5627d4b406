"""Hosts on this machine: each a network namespace with its own host name and /etc/hosts, all at one bridge."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.command import environment

_ETC = Path("/etc/netns")
_beds = itertools.count()
"""What a namespace leaves is removed by the kernel some time later, so that each bed has names of its own."""


class HostsBed:
    """Hosts node0, node1 and so on; a context manager that leaves nothing of them.

    Args:
        count: how many.
        resolves: the lines of a host's /etc/hosts that are not as they should be, by its number.
    """

    def __init__(self, count: int = 2, resolves: Mapping[int, str] | None = None) -> None:
        self.count, self._resolves = count, resolves or {}
        self._id = f"{os.getpid() % 100_000}{chr(ord('a') + next(_beds) % 26)}"
        self.addresses = [f"10.213.{os.getpid() % 200}.{number + 1}" for number in range(count)]
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "HostsBed":
        try:
            self._set_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._take_down()

    def namespace(self, number: int) -> str:
        """The name of a host's network namespace."""
        return f"ddp{self._id}-{number}"

    def command(self, number: int, words: Sequence[str]) -> list[str]:
        """The command line that runs words on a host."""
        script = f'hostname node{number}; exec "$@"'
        return [
            *("ip", "netns", "exec", self.namespace(number)),
            *("unshare", "--uts", "sh", "-c", script, "sh", *words),
        ]

    def start(
        self, number: int, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command on a host."""
        process = subprocess.Popen(
            self.command(number, words),
            cwd=cwd,
            env=environment(env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def ddpdoctor(
        self, number: int, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start ``ddpdoctor`` on a host."""
        return self.start(number, [sys.executable, "-m", "ddpdoctor", *words], cwd, env)

    def launch(self, number: int, port: int, nproc: int = 2) -> list[str]:
        """The options of the launch on a host."""
        numbers = {"--nnodes": self.count, "--node-rank": number, "--master-port": port, "--nproc": nproc}
        options = [word for name, value in numbers.items() for word in (name, str(value))]
        return [*options, "--master-addr", self.addresses[0]]

    def cut(self, number: int) -> None:
        """Pull a host's cable."""
        _ip("link", "set", self._port(number), "down")

    def mend(self, number: int) -> None:
        """Plug it in again."""
        _ip("link", "set", self._port(number), "up")

    def pids(self, number: int) -> list[int]:
        """The processes on a host."""
        done = _ip("netns", "pids", self.namespace(number))
        return [int(word) for word in done.stdout.split()]

    def run(self, number: int, *words: str) -> None:
        """Run a command on a host to its end."""
        subprocess.run(self.command(number, words), capture_output=True, check=True)

    def hosts_file(self, number: int) -> Path:
        """The /etc/hosts of a host."""
        return _ETC / self.namespace(number) / "hosts"

    def _port(self, number: int) -> str:
        """The bridge's end of a host's cable."""
        return f"ddp{self._id}p{number}"

    def _set_up(self) -> None:
        bridge = f"ddp{self._id}br"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for number, address in enumerate(self.addresses):
            namespace, port = self.namespace(number), self._port(number)
            self._write_hosts(number)
            _ip("netns", "add", namespace)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", port, "master", bridge, "up")
            _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", namespace, "link", "set", interface, "up")

    def _write_hosts(self, number: int) -> None:
        folder = _ETC / self.namespace(number)
        folder.mkdir(parents=True, exist_ok=True)
        instead = self._resolves.get(number, "")
        usual = "".join(
            f"{address} node{other}\n"
            for other, address in enumerate(self.addresses)
            if f"node{other}" not in instead.split()
        )
        (folder / "resolv.conf").write_text("")  # a lookup ends at once, and not after its time limit
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{instead}{usual}")

    def _take_down(self) -> None:
        for number in range(self.count):
            for pid in self.pids(number) if self._is_there(number) else ():
                _kill(pid)
        for process in self.processes:
            process.communicate()
        for number in range(self.count):
            subprocess.run(["ip", "netns", "del", self.namespace(number)], capture_output=True, check=False)
            shutil.rmtree(_ETC / self.namespace(number), ignore_errors=True)
        subprocess.run(["ip", "link", "del", f"ddp{self._id}br"], capture_output=True, check=False)

    def _is_there(self, number: int) -> bool:
        return Path("/run/netns", self.namespace(number)).exists()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass


def _ip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["ip", *arguments], capture_output=True, check=True, text=True)

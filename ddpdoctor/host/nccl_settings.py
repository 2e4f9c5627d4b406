"""How NCCL reads its settings: variables, its configuration files, and its lists of names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.host import Host, System

SYSTEM_FILE = "/etc/nccl.conf"


@dataclass(frozen=True)
class Setting:
    """A value that NCCL would use, and where it stands."""

    value: str
    source: str
    """``environment``, or the path of a configuration file."""


def nccl_setting(host: Host, name: str) -> Setting | None:
    """The value of an NCCL variable: the environment wins over the user's file, and that over the system's."""
    if name in host.environ:
        return Setting(host.environ[name], "environment")
    for path in _files(host):
        for line in (host.system.read_text(path) or "").splitlines():
            key, equals, value = line.partition("=")
            if equals and key == name:
                return Setting(value, path)
    return None


def is_on(setting: Setting | None) -> bool:
    """Whether a switch such as NCCL_IB_DISABLE is set to something other than 0."""
    return setting is not None and setting.value.strip() not in ("", "0")


def _files(host: Host) -> Iterator[str]:
    configured = host.environ.get("NCCL_CONF_FILE")
    home = host.environ.get("HOME")
    if configured:
        yield configured
    elif home:
        yield f"{home}/.nccl.conf"
    yield SYSTEM_FILE


@dataclass(frozen=True)
class NameList:
    """A list such as ``eth``, ``=eth0,eth1``, ``^docker,lo`` or ``mlx5_0:1``: of NCCL_SOCKET_IFNAME, NCCL_IB_HCA."""

    entries: tuple[tuple[str, int | None], ...]
    """Names or beginnings of names, each with a port number where one is given."""
    exact: bool = False
    exclude: bool = False

    @classmethod
    def parse(cls, text: str) -> NameList:
        """``^`` excludes and ``=`` asks for whole names; both stand only at the beginning, for the whole list."""
        exclude = text.startswith("^")
        text = text.removeprefix("^")
        exact = text.startswith("=")
        pairs = (entry.split(":") for entry in text.removeprefix("=").split(","))
        return cls(tuple((pair[0], _number(pair[1:2])) for pair in pairs if pair[0]), exact, exclude)

    def allows(self, name: str, port: int | None = None) -> bool:
        """Whether NCCL would use what has this name. A list without entries matches every name."""
        matched = not self.entries or any(
            (name == wanted if self.exact else name.startswith(wanted))
            and (port is None or number is None or port == number)
            for wanted, number in self.entries
        )
        return matched != self.exclude


def _number(text: list[str]) -> int | None:
    return int(text[0]) if text and text[0].isdigit() else None


def debug_variables(system: System, folder: Path) -> dict[str, str]:
    """Variables that have NCCL say what it decides, one file a rank; the user's own settings win."""
    ours = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log")}
    return {name: value for name, value in ours.items() if name not in system.environ}

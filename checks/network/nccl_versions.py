import re
from dataclasses import dataclass
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Evidence, Finding, Judgement, Kind, Passed, Skipped
from ddpdoctor.redact import quote

_WHEELS = ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
_LIBRARY = re.compile(r"libnccl\.so(?:\.([\d.]+))?")
"""NCCL itself; its plugins (libnccl-net.so) are meant to be added this way."""
_FOREIGN = r"undefined symbol: (?P<symbol>nccl\w+)"
_VERSION = r"NCCL version (\d+(?:\.\d+)+)"
_MISMATCH = r"(?i)mismatched NCCL version|NCCL version mismatch"


@dataclass(frozen=True)
class _Copy:
    """A libnccl that the loader may take in place of the wheel's."""

    path: str
    version: str
    """Empty where the file's name does not say."""
    variable: str


class NcclVersions(Check):
    """torch may load another NCCL library than its own.

    What it finds:
        LD_PRELOAD or LD_LIBRARY_PATH leads to a libnccl of another version than the nvidia-nccl wheel that torch
        was installed with; or several nvidia-nccl wheels of different versions are installed, which write their
        library to one and the same path. Plugins such as libnccl-net.so, and equal versions, are fine.

    Why it matters:
        torch is built against the version of its wheel. An older library makes the import fail with an undefined
        symbol; ranks or nodes that load different versions end with "mismatched NCCL version", or hang.

    Example:
        A module system that adds its own NCCL:
            export LD_PRELOAD=/opt/nccl/2.18/lib/libnccl.so.2

    Fix:
        Take the other copy out of the variable, or remove the wheel that does not belong to this torch:
            pip uninstall nvidia-nccl-cu11 && pip install --force-reinstall --no-deps nvidia-nccl-cu12==<version>
    """

    code = "DD708"
    title = "one NCCL library"
    raises = (_FOREIGN, _MISMATCH)
    log_words = ("undefined symbol", "NCCL version", "nccl version")

    def examine_host(self, host: Host) -> Judgement:
        wheels = {name: version for name in _WHEELS if (version := host.system.installed(name))}
        if not wheels:
            return Skipped("torch came without NCCL's wheel")
        if len(set(wheels.values())) > 1:
            return self._two_wheels(wheels)
        version = next(iter(wheels.values()))
        others: dict[str, list[_Copy]] = {}
        for copy in _copies(host):
            if copy.version and not _same(copy.version, version):
                others.setdefault(copy.variable, []).append(copy)
        return [self._other(copies, version) for copies in others.values()] or Passed(f"NCCL {version}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_FOREIGN)
        if reason:
            text = f"the libnccl that was loaded has no {reason.match['symbol']}, which torch needs"
            return self._told(text, log_fields(reason))
        reason = log.search(_MISMATCH)
        if reason:
            return self._told("ranks loaded different versions of NCCL", log_fields(reason))
        lines = log.find(_VERSION)
        different = {match[1]: line for line in lines if (match := re.search(_VERSION, line.text))}
        if len(different) < 2 or not log.failed:
            return NOT_IN_OUTPUT
        return self._told(
            f"ranks loaded NCCL {' and '.join(sorted(different))}", log_fields(*different.values())
        )

    def _told(self, headline: str, details: dict[str, Any]) -> Finding:
        return self.fail(
            headline,
            why="Two NCCL libraries are in the way: wheels for two CUDA versions share a folder, or "
            "LD_LIBRARY_PATH finds "
            "the system's before torch's own. Versions that differ do not understand each other.",
            fix="pip list | grep -i nccl     # one nvidia-nccl-cuXX, the one that torch requires\n"
            "echo $LD_LIBRARY_PATH $LD_PRELOAD",
            **details,
        )

    def _two_wheels(self, wheels: dict[str, str]) -> Finding:
        shown = " and ".join(f"{name} {version}" for name, version in wheels.items())
        return self.warn(
            f"{shown} are installed, and share one file",
            why="Both wheels write nvidia/nccl/lib/libnccl.so.2. Whichever was installed last is loaded, and "
            "torch may miss a symbol in it when it is imported.",
            fix=f"pip uninstall {' '.join(wheels)}, and install torch again: it brings the one that it needs",
            evidence=tuple(Evidence(f"{name} {version}") for name, version in wheels.items()),
        )

    def _other(self, copies: list[_Copy], version: str) -> Finding:
        """Of the copies to which one variable leads."""
        first = copies[0]
        # torch's wheels carry their own search path, which the loader reads before LD_LIBRARY_PATH;
        # other builds do not. LD_PRELOAD wins always.
        report = self.warn if first.variable == "LD_PRELOAD" else self.info
        return report(
            f"{first.variable} leads to NCCL {first.version}, and torch was installed with {version}",
            why="torch is built against the version of its wheel. Ranks that load another one may miss a "
            "symbol, or find that the versions differ between nodes.",
            fix=f"take {quote(first.path)} out of {first.variable}",
            evidence=tuple(
                Evidence(f"{copy.variable}: {quote(copy.path)} is NCCL {copy.version}") for copy in copies
            ),
            about=Kind.VARIABLE.of(first.variable),
        )


def _copies(host: Host) -> list[_Copy]:
    preloaded = re.split(r"[\s:]+", host.environ.get("LD_PRELOAD", ""))
    folders = dict.fromkeys(host.environ.get("LD_LIBRARY_PATH", "").split(":"))
    copies = [
        _Copy(path, _version(host, path.rpartition("/")[0], path.rpartition("/")[2]), "LD_PRELOAD")
        for path in preloaded
        if _LIBRARY.fullmatch(path.rpartition("/")[2])
    ]
    return copies + [
        _Copy(f"{folder}/libnccl.so.2", _version(host, folder), "LD_LIBRARY_PATH")
        for folder in folders
        if folder and "libnccl.so.2" in host.system.list_dir(folder)
    ]


def _version(host: Host, folder: str, file: str = "") -> str:
    """The version in the longest name of the library: libnccl.so.2 is a link to libnccl.so.2.27.3."""
    matches = (_LIBRARY.fullmatch(name) for name in (file, *host.system.list_dir(folder)))
    versions = [match.group(1) for match in matches if match and match.group(1)]
    longest = max(versions, key=len, default="")
    return longest if "." in longest else ""


def _same(library: str, wheel: str) -> bool:
    """Whether a library's version is the wheel's, whose number may have a part more (2.27.3.1)."""
    return wheel == library or wheel.startswith(f"{library}.")

import re
from collections.abc import Iterator

from ddpdoctor.check import Check, Findings, Judgement, Kind, Passed
from ddpdoctor.host import Host
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.text import quote

_WHEELS = ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
_LIBRARY = re.compile(r"libnccl\.so(?:\.([\d.]+))?")
"""NCCL itself; plugins (libnccl-net.so) are added in this way on purpose."""
_MISSING_SYMBOL = r"undefined symbol: (?P<symbol>nccl\w+)"
_VERSION = r"NCCL version (\d+(?:\.\d+)+)"
_MISMATCH = r"(?i)mismatched NCCL version|NCCL version mismatch"


class NcclVersions(Check):
    """torch may load another NCCL library than the one it was installed with.

    What it finds:
        LD_PRELOAD or LD_LIBRARY_PATH contains a libnccl of another version than torch's nvidia-nccl wheel; or several
        nvidia-nccl wheels of different versions are installed, which write their library to the same path. Plugins
        such as libnccl-net.so, and equal versions, are correct.

    Why it matters:
        torch is built for the version of its wheel. With an older library, the import fails with an undefined symbol;
        ranks or nodes that load different versions fail with "mismatched NCCL version", or hang.

    Example:
        A module system adds its own NCCL:
            export LD_PRELOAD=/opt/nccl/2.18/lib/libnccl.so.2

    Fix:
        Remove the other copy from the variable, or the wheel that does not belong to this torch:
            echo $LD_LIBRARY_PATH $LD_PRELOAD; pip list | grep -i nccl
            pip uninstall nvidia-nccl-cu11 && pip install --force-reinstall --no-deps nvidia-nccl-cu12==VERSION
    """

    code = "DD708"
    title = "one NCCL library"
    raises = (_MISSING_SYMBOL, _MISMATCH)
    log_words = ("NCCL version", "nccl version")

    def examine_host(self, host: Host) -> Findings:
        wheels = {name: version for name in _WHEELS if (version := host.system.installed(name))}
        self.require(wheels, "torch was installed without NCCL's wheel")
        if len(set(wheels.values())) > 1:
            shown = " and ".join(f"{name} {version}" for name, version in wheels.items())
            yield self.warn(
                f"{shown} are installed, and share one file",
                why="The wheels write the same file, nvidia/nccl/lib/libnccl.so.2. The one that was installed last is "
                "loaded, and may lack a symbol that torch needs.",
                evidence=[f"{name} {version}" for name, version in wheels.items()],
            )
            return
        version = next(iter(wheels.values()))
        others: dict[str, list[tuple[str, str]]] = {}
        for variable, path, other in _copies(host):
            # The wheel's number may have a part more (2.27.3.1).
            if other and version != other and not version.startswith(f"{other}."):
                others.setdefault(variable, []).append((path, other))
        for variable, copies in others.items():
            path, other = copies[0]
            # torch's wheels have their own search path, which the loader reads before LD_LIBRARY_PATH;
            # other builds do not. LD_PRELOAD always comes first.
            report = self.warn if variable == "LD_PRELOAD" else self.info
            yield report(
                f"{variable} leads to NCCL {other}, and torch was installed with {version}",
                fix=f"remove {quote(path)} from {variable}",
                evidence=[f"{variable}: {quote(path)} is NCCL {other}" for path, other in copies],
                about=Kind.VARIABLE.of(variable),
            )
        yield Passed(f"NCCL {version}")

    def examine_log(self, log: Log) -> Judgement:
        if reason := log.search(_MISSING_SYMBOL):
            headline = f"the libnccl that was loaded has no {reason.match['symbol']}, which torch needs"
            return self.fail(headline, **log_fields(reason))
        if reason := log.search(_MISMATCH):
            return self.fail("ranks loaded different versions of NCCL", **log_fields(reason))
        matches = ((line, re.search(_VERSION, line.text)) for line in log.find(_VERSION))
        by_version = {match[1]: line for line, match in matches if match}
        if len(by_version) < 2 or not log.failed:
            return NOT_IN_OUTPUT
        headline = f"ranks loaded NCCL {' and '.join(sorted(by_version))}"
        return self.fail(headline, **log_fields(*by_version.values()))


def _copies(host: Host) -> Iterator[tuple[str, str, str]]:
    """The libnccl that the loader may use instead of the wheel's: the variable that leads to it, its path, its version,
    which is empty where the file's name does not contain it."""
    for path in re.split(r"[\s:]+", host.environ.get("LD_PRELOAD", "")):
        folder, _, file = path.rpartition("/")
        if _LIBRARY.fullmatch(file):
            yield "LD_PRELOAD", path, _version(host, folder, file)
    for folder in dict.fromkeys(host.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if folder and "libnccl.so.2" in host.system.list_dir(folder):
            yield "LD_LIBRARY_PATH", f"{folder}/libnccl.so.2", _version(host, folder)


def _version(host: Host, folder: str, file: str = "") -> str:
    """The version in the longest name of the library: libnccl.so.2 is a link to libnccl.so.2.27.3."""
    matches = (_LIBRARY.fullmatch(name) for name in (file, *host.system.list_dir(folder)))
    versions = [match.group(1) for match in matches if match and match.group(1)]
    longest = max(versions, key=len, default="")
    return longest if "." in longest else ""

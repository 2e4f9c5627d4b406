from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.host.known_variables import KNOWN, RENAMED, misspelling_of, whole_number
from ddpdoctor.model import Evidence, Finding, Judgement, Kind, Level, Passed
from ddpdoctor.redact import show_value

DEBUG = "TORCH_DISTRIBUTED_DEBUG"
DEBUG_LEVELS = ("OFF", "INFO", "DETAIL")
CRASHES_UNDER_DETAIL = "2.13."
"""Measured with the CPU build of 2.13.0: SIGSEGV in DistributedDataParallel(torch.nn.Linear(4, 4))."""


class Setting(NamedTuple):
    """A variable with a value that belongs into an experiment and not into a job."""

    value: str
    level: Level
    """With the NCCL backend; with others it is only information, since nothing reads the variable."""
    why: str


LEFT_ON = {
    "CUDA_LAUNCH_BLOCKING": Setting(
        "1", Level.WARN, "Every CUDA kernel is waited for, so communication no longer overlaps with backward."
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Setting(
        "1", Level.WARN, "The host waits in every collective, so communication no longer overlaps with backward."
    ),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": Setting(
        "0", Level.WARN, "A collective that fails or times out is not aborted: its ranks hang until they are killed."
    ),
    "TORCH_NCCL_ENABLE_MONITORING": Setting(
        "0", Level.INFO, "A process group whose watchdog is stuck is not ended any more."
    ),
    "NCCL_P2P_DISABLE": Setting(
        "1", Level.INFO, "GPUs of one host talk through host memory instead of NVLink or PCIe: right where "
        "P2P is broken, slow elsewhere."
    ),
    "NCCL_SHM_DISABLE": Setting(
        "1", Level.INFO, "GPUs of one host without P2P talk through the network stack, which is slower."
    ),
    "NCCL_IB_DISABLE": Setting(
        "1", Level.INFO, "Nodes talk over TCP sockets, even where InfiniBand or RoCE is there."
    ),
}  # fmt: skip


class HarmfulVariable(Check):
    """A debugging or tuning variable is misspelt, renamed, contradictory, left on, or crashes this torch.

    What it finds:
        Variables of NCCL, gloo, torch.distributed, OpenMP and CUDA whose name is one slip away from a known one;
        old names; values that torch rejects; pairs that contradict each other; debugging switches that were
        left on; and TORCH_DISTRIBUTED_DEBUG=DETAIL with a torch that it crashes. Unknown names that resemble none
        (a plugin's, your own) are never reported.

    Why it matters:
        A misspelt variable has no effect, and nothing says so: the job takes the wrong network interface, or all
        GPUs, while the job script looks right. A debugging switch that was left on costs speed, or the job.

    Example:
        Three lines of a job script:
            export NCCL_SOCKET_IFNAM=eth0            # misspelt: NCCL chooses an interface by itself
            export CUDA_LAUNCH_BLOCKING=1            # left on after last week's debugging
            export TORCH_DISTRIBUTED_DEBUG=DETAIL    # SIGSEGV in DDP's constructor with torch 2.13 for CPU

    Fix:
        Correct the name, or remove the line:
            unset NCCL_SOCKET_IFNAM; export NCCL_SOCKET_IFNAME=eth0
    """

    code = "DD009"
    title = "no variable is misspelt or left on"
    breaks_group = True

    def examine_host(self, host: Host) -> Judgement:
        environ = host.environ
        findings = [
            *self._debug(host),
            *self._misspelt(environ),
            *self._contradictory(environ),
            *self._left_on(environ, nccl="nccl" in host.launch.backend),
            *self._renamed(environ),
        ]
        count = sum(name in KNOWN for name in environ)
        return findings or Passed(
            f"{count or 'no'} known {'variable is' if count == 1 else 'variables are'} set, none harmful"
        )

    def _debug(self, host: Host) -> Iterator[Finding]:
        value = host.environ.get(DEBUG)
        level = (value or "OFF").upper()
        if value is not None and level not in DEBUG_LEVELS:
            yield self.fail(
                f"{DEBUG}={show_value(DEBUG, value)} is not a level",
                why="torch raises a ValueError in init_process_group for anything but OFF, INFO and DETAIL.",
                fix=f"unset {DEBUG}",
                about=Kind.VARIABLE.of(DEBUG),
            )
        elif level == "DETAIL":
            yield self._detail(host)
        elif level == "INFO":
            yield self._info_level()

    def _detail(self, host: Host) -> Finding:
        build = host.torch
        if build and build.version.startswith(CRASHES_UNDER_DETAIL) and not (build.cuda or build.hip):
            return self.fail(
                f"{DEBUG}=DETAIL crashes torch {build.version} in DDP's constructor",
                why="Under DETAIL every process group is wrapped to compare collectives; in this build the wrapper "
                "ends in a segmentation fault as soon as a module is wrapped in DistributedDataParallel.",
                fix=f"export {DEBUG}=INFO, or unset {DEBUG}",
                about=Kind.VARIABLE.of(DEBUG),
            )
        return self.warn(
            f"{DEBUG}=DETAIL is set",
            why="Every collective is preceded by one over gloo that compares shapes, so each step is much slower.",
            fix=f"unset {DEBUG} when the bug is found",
            about=Kind.VARIABLE.of(DEBUG),
        )

    def _info_level(self) -> Finding:
        return self.info(
            f"{DEBUG}=INFO is set",
            why="DDP collects and logs statistics, which costs a little in some steps.",
            fix=f"unset {DEBUG} when the bug is found",
            about=Kind.VARIABLE.of(DEBUG),
        )

    def _misspelt(self, environ: Mapping[str, str]) -> Iterator[Finding]:
        for name, value in sorted(environ.items()):
            meant = misspelling_of(name)
            if meant:
                yield self.warn(
                    f"unknown variable {name} is set; did you mean {meant}?",
                    why=f"A variable with a misspelt name has no effect and no message, so the job runs as if {meant} "
                    + (f"were {show_value(meant, environ[meant])}." if meant in environ else "were not set."),
                    fix=f"unset {name}; export {meant}=...",
                    evidence=(Evidence(f"{name}={show_value(name, value)}"),),
                    about=Kind.VARIABLE.of(name),
                )

    def _contradictory(self, environ: Mapping[str, str]) -> Iterator[Finding]:
        for old, new in RENAMED.items():
            if old in environ and environ.get(new, environ[old]) != environ[old]:
                yield self._contradiction(
                    environ, old, new, f"{old} is the old name of {new}; one of the two wins."
                )
        low, high = (whole_number(environ.get(f"NCCL_{end}_NCHANNELS", "")) for end in ("MIN", "MAX"))
        if low is not None and high is not None and low > high >= 0:
            why = "NCCL cannot use at least so many channels and at most fewer; it drops one of the two."
            yield self._contradiction(environ, "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", why)
        if environ.get("TORCH_NCCL_DUMP_ON_TIMEOUT") == "1" and environ.get("TORCH_FR_BUFFER_SIZE") == "0":
            why = "The flight recorder records nothing, so what is dumped on a timeout is empty."
            yield self._contradiction(environ, "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_BUFFER_SIZE", why)

    def _contradiction(self, environ: Mapping[str, str], one: str, other: str, why: str) -> Finding:
        shown = [f"{name}={show_value(name, environ[name])}" for name in (one, other)]
        return self.warn(
            f"{shown[0]} contradicts {shown[1]}",
            why=why,
            fix=f"unset {one}, or unset {other}",
            about=Kind.VARIABLE.of(one, other),
        )

    def _left_on(self, environ: Mapping[str, str], nccl: bool) -> Iterator[Finding]:
        for name, setting in LEFT_ON.items():
            old = next((before for before, now in RENAMED.items() if now == name and before in environ), name)
            used = name if name in environ else old
            if environ.get(used) == setting.value:
                report = self.warn if nccl and setting.level is Level.WARN else self.info
                yield report(
                    f"{used}={setting.value} is set",
                    why=setting.why + ("" if nccl else " The backend of this launch is not NCCL."),
                    fix=f"unset {used}",
                    about=Kind.VARIABLE.of(used),
                )

    def _renamed(self, environ: Mapping[str, str]) -> Iterator[Finding]:
        for old, new in RENAMED.items():
            left_on = new in LEFT_ON and environ.get(old) == LEFT_ON[new].value
            if old in environ and new not in environ and not left_on:
                yield self.info(
                    f"{old} is set by its old name; it is called {new} now",
                    why="The old name still works in many versions and is dropped without a message in a later one.",
                    fix=f"unset {old}; export {new}=...",
                    evidence=(Evidence(f"{old}={show_value(old, environ[old])}"),),
                    about=Kind.VARIABLE.of(old),
                )

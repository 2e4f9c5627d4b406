from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ddpdoctor.check import Check, Finding, Judgement, Kind, Level, Passed
from ddpdoctor.host import Host
from ddpdoctor.host.known_variables import KNOWN, RENAMED, misspelling_of, whole_number
from ddpdoctor.text import show_value, show_variable

DEBUG = "TORCH_DISTRIBUTED_DEBUG"
DEBUG_LEVELS = ("OFF", "INFO", "DETAIL")
CRASHES_UNDER_DETAIL = "2.13."
"""Measured with the CPU build of 2.13.0: SIGSEGV in DistributedDataParallel(torch.nn.Linear(4, 4))."""


class Setting(NamedTuple):
    """A value of a variable that is meant for an experiment, not for a job."""

    value: str
    level: Level
    """With the NCCL backend; with others it is information only, because nothing reads the variable."""
    why: str


LEFT_ON = {
    "CUDA_LAUNCH_BLOCKING": Setting(
        "1", Level.WARN, "Each launch of a CUDA kernel blocks, so communication no longer overlaps with backward."
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Setting(
        "1", Level.WARN, "Every collective blocks the host, so communication no longer overlaps with backward."
    ),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": Setting(
        "0", Level.WARN, "A collective that fails or times out is not aborted: its ranks hang until they are killed."
    ),
    "TORCH_NCCL_ENABLE_MONITORING": Setting(
        "0", Level.INFO, "A process whose watchdog hangs is not aborted."
    ),
    "NCCL_P2P_DISABLE": Setting(
        "1", Level.INFO, "GPUs of one host communicate through host memory instead of NVLink or PCIe, which "
        "is slower."
    ),
    "NCCL_SHM_DISABLE": Setting(
        "1", Level.INFO, "GPUs of one host without P2P communicate through sockets, which is slower."
    ),
    "NCCL_IB_DISABLE": Setting(
        "1", Level.INFO, "Nodes communicate over TCP sockets, even with InfiniBand or RoCE."
    ),
}  # fmt: skip


class HarmfulVariable(Check):
    """A debugging or tuning variable is misspelt, renamed, contradictory, left on, or crashes this torch.

    What it finds:
        Variables of NCCL, gloo, torch.distributed, OpenMP and CUDA whose name is one typing error away from a known
        one; old names; values that torch rejects; pairs that contradict each other; debugging switches that were
        left on; and TORCH_DISTRIBUTED_DEBUG=DETAIL with a torch that it crashes. Unknown names that resemble none
        (of a plugin, of your own) are never reported.

    Why it matters:
        A misspelt variable has no effect and causes no message: the job uses the wrong network interface, or all
        GPUs, although the job script looks right. A debugging switch that was left on slows the job down.

    Example:
        Three lines of a job script:
            export NCCL_SOCKET_IFNAM=eth0            # misspelt: NCCL chooses an interface by itself
            export CUDA_LAUNCH_BLOCKING=1            # left on after debugging
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
        verb = "variable is" if count == 1 else "variables are"
        return findings or Passed(f"{count or 'no'} known {verb} set, none harmful")

    def _debug(self, host: Host) -> Iterator[Finding]:
        value = host.environ.get(DEBUG, "OFF")
        build, report, fix = host.torch, self.warn, f"unset {DEBUG} when the bug is found"
        if value.upper() not in DEBUG_LEVELS:
            report, fix = self.fail, f"unset {DEBUG}"
            problem = f"{show_variable(DEBUG, value)} is not a level"
            why = "torch raises a ValueError in init_process_group for anything but OFF, INFO and DETAIL."
        elif value.upper() == "OFF":
            return
        elif value.upper() == "INFO":
            report, problem = self.info, f"{DEBUG}=INFO is set"
            why = "DDP collects and logs statistics, which takes a little time in some steps."
        elif build and build.version.startswith(CRASHES_UNDER_DETAIL) and not (build.cuda or build.hip):
            report, fix = self.fail, f"export {DEBUG}=INFO, or unset {DEBUG}"
            problem = f"{DEBUG}=DETAIL crashes torch {build.version} in DDP's constructor"
            why = (
                "DETAIL wraps every process group to compare collectives. In this build the wrapper causes a "
                "segmentation fault in the constructor of DistributedDataParallel."
            )
        else:
            problem = f"{DEBUG}=DETAIL is set"
            why = (
                "Before every collective, another one over gloo compares shapes, so each step is much slower."
            )
        yield report(problem, why=why, fix=fix, about=Kind.VARIABLE.of(DEBUG))

    def _misspelt(self, environ: Mapping[str, str]) -> Iterator[Finding]:
        for name, value in sorted(environ.items()):
            if meant := misspelling_of(name):
                current = show_value(meant, environ[meant]) if meant in environ else "not set"
                instead = f"{meant} were {current}"
                yield self.warn(
                    f"unknown variable {name} is set; did you mean {meant}?",
                    why=f"A misspelt variable has no effect and causes no message: the job runs as if {instead}.",
                    fix=f"unset {name}; export {meant}=...",
                    evidence=(show_variable(name, value),),
                    about=Kind.VARIABLE.of(name),
                )

    def _contradictory(self, environ: Mapping[str, str]) -> Iterator[Finding]:
        for first, second, why in _contradictions(environ):
            shown = [show_variable(name, environ[name]) for name in (first, second)]
            yield self.warn(
                f"{shown[0]} contradicts {shown[1]}",
                why=why,
                fix=f"unset {first}, or unset {second}",
                about=Kind.VARIABLE.of(first, second),
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
                    why="The old name still works in many versions of torch, and later ones ignore it silently.",
                    fix=f"unset {old}; export {new}=...",
                    evidence=(show_variable(old, environ[old]),),
                    about=Kind.VARIABLE.of(old),
                )


def _contradictions(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Two variables that contradict each other, and why."""
    for old, new in RENAMED.items():
        if old in environ and environ.get(new, environ[old]) != environ[old]:
            yield old, new, f"{old} is the old name of {new}; only one of the two has an effect."
    low, high = (whole_number(environ.get(f"NCCL_{end}_NCHANNELS", "")) for end in ("MIN", "MAX"))
    if low is not None and high is not None and low > high >= 0:
        why = "The least number of channels is above the greatest; NCCL ignores one of the two."
        yield "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", why
    if environ.get("TORCH_NCCL_DUMP_ON_TIMEOUT") == "1" and environ.get("TORCH_FR_BUFFER_SIZE") == "0":
        why = "The flight recorder records nothing, so its dump on a timeout is empty."
        yield "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_BUFFER_SIZE", why

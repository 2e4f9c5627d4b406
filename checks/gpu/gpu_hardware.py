import re
from collections.abc import Iterator

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Kind, Passed, Role, Skipped
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import sysfs_name, visibility
from ddpdoctor.host.nvml import Gpu
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Reason, log_fields
from ddpdoctor.text import plural, ranks_phrase, shorten

_XID = re.compile(r"\[\s*(\d+\.\d+)\].*NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)\b")
_HARDWARE_XIDS = {
    48: "an uncorrectable memory error",
    64: "a memory row that could not be replaced",
    74: "an NVLink error",
    79: "the GPU fell off the bus",
    92: "a high rate of memory errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the GPU's system processor did not answer",
    120: "the GPU's system processor failed",
}
"""Xid errors of the hardware or the driver; programs cause others, such as 13, 31, 43 and 45."""
RECENT = 24 * 3600.0
"""Seconds for which an Xid in the kernel's log is relevant."""
_SLOWED_BY = {
    "HwThermalSlowdown": "heat",
    "SwThermalSlowdown": "heat",
    "HwPowerBrakeSlowdown": "a power brake signal",
    "HwSlowdown": "heat or power",
}
"""Reasons that mean a fault of cooling or power supply; SwPowerCap is normal for a busy GPU."""
_SHARED_COOLING = ("Laptop", "Mobile", "Max-Q")
_DEFECT = (
    r"uncorrectable (?:ECC|NVLink) error(?: encountered)?|NVRM: Xid .{0,40}: (?!(?:13|31|43|45|69)\b)\d+"
    r"|(?:GPU has|NVRM:) fallen off the bus|GPU is lost|double.bit ECC error|hardware stack error"
    r"|Unable to determine the device handle for (?i:gpu).{1,30}: (?:Unknown Error|GPU is lost)"
)
"""Xids 13, 31, 43, 45 and 69 mean that a program used the GPU wrongly, or ended."""
_BUS = r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\)"
"""The GPU in a line of the driver."""


class GpuHardware(Check):
    """A GPU is lost, has memory errors, or is throttled by heat or power.

    What it finds:
        A GPU that does not answer NVML (it fell off the bus); memory errors that ECC could not correct since the driver
        was loaded; a clock that is reduced because of heat or a power brake; Xid errors of the hardware in the
        kernel's log of the last day, if this user may read it. A GPU at its power limit, and Xid errors that programs
        cause (13, 31, 43), are not reported.

    Why it matters:
        A lost GPU stops its rank, and all others wait. Uncorrected errors end the process, or change its numbers. In
        data parallel training every GPU waits for the slowest. Jobs on this node fail until the GPU is reset or
        replaced.

    Example:
        What nvidia-smi prints:
            Unable to determine the device handle for GPU 0000:B3:00.0: GPU is lost. Reboot the system to recover.

    Fix:
        Look at the GPU, and exclude the node (sbatch --exclude NODE) or the GPU (CUDA_VISIBLE_DEVICES):
            nvidia-smi -q -d ECC,ROW_REMAPPER,PERFORMANCE,TEMPERATURE,POWER; dmesg -T | grep Xid
        Reset the GPU with nothing running on it, or restart the node; replace the GPU if the error recurs:
            nvidia-smi --gpu-reset -i INDEX
    """

    code = "DD805"
    title = "the GPUs are healthy"
    breaks_group = True
    raises = (_DEFECT,)

    def examine_host(self, host: Host) -> Judgement:
        if host.gpus.absent:
            return Skipped(host.gpus.absent)
        used = self.require(visibility(host).gpus, "no GPU is visible")
        findings = [finding for gpu in used for finding in self._errors(gpu)]
        if not any(gpu.lost for gpu in used):  # the kernel's log contains the same loss
            findings += self._xids(host, used)
        return findings or Passed(f"{plural(len(used), 'GPU')} without errors")

    def examine_log(self, log: Log) -> Judgement:
        return [self._in_output(*it) for it in log.each(_BUS, _DEFECT).items()] or NOT_IN_OUTPUT

    def _in_output(self, bus: str, reason: Reason) -> Finding:
        details = log_fields(reason, role=Role.SYSTEM)
        whose = f"the GPU of {ranks_phrase(details['ranks'])}" if details["ranks"] else "a GPU"
        return self.fail(
            f"{whose} reported a hardware error: {reason.match[0]}",
            about=Kind.GPU.of(bus) if bus else (),
            **details,
        )

    def _errors(self, gpu: Gpu) -> Iterator[Finding]:
        name, described, about = f"GPU {gpu.index}", _describe(gpu), Kind.GPU.of(gpu.index)
        seen = (Evidence(described),)
        if gpu.lost is not None:
            yield self.fail(f"{name} does not answer: {gpu.lost}", evidence=seen, about=about)
        if gpu.ecc_uncorrected:
            errors = plural(gpu.ecc_uncorrected, "uncorrected memory error")
            headline = f"{name} has had {errors} since the driver was loaded"
            yield self.warn(headline, evidence=seen, about=about)
        if slowed := [reason for reason in gpu.throttle_reasons if reason in _SLOWED_BY]:
            # The parts of a laptop share their cooling and power supply, so it slows down normally.
            report = self.info if any(word in gpu.name for word in _SHARED_COOLING) else self.warn
            headline = f"{name} has lowered its clock because of {_SLOWED_BY[slowed[0]]}"
            yield report(headline, evidence=(f"{described}: {', '.join(slowed)}",), about=about)

    def _xids(self, host: Host, used: tuple[Gpu, ...]) -> Iterator[Finding]:
        """Of the kernel's log: one for each number of each GPU."""
        buses = {sysfs_name(gpu.pci_bus_id).rpartition(".")[0]: gpu.index for gpu in used}
        uptime = float((host.system.read_text("/proc/uptime") or "0").split()[0])
        errors: dict[tuple[int, int], list[re.Match[str]]] = {}
        for match in filter(None, map(_XID.search, host.system.kernel_log().splitlines())):
            index, number = buses.get(match[2].lower()), int(match[3])
            if index is not None and number in _HARDWARE_XIDS and uptime - float(match[1]) <= RECENT:
                errors.setdefault((index, number), []).append(match)
        for (index, number), matches in errors.items():
            last = matches[-1]
            yield self.warn(
                f"GPU {index} reported Xid {number} {_ago(uptime - float(last[1]))} ago: {_HARDWARE_XIDS[number]}",
                evidence=(f"{plural(len(matches), 'time')}, last: {shorten(last.string[last.start() :])}",),
                confidence=Confidence.LIKELY,
                about=Kind.GPU.of(index),
            )


def _ago(seconds: float) -> str:
    minutes = max(0, int(seconds)) // 60
    return plural(minutes // 60, "hour") if minutes >= 60 else plural(minutes, "minute")


def _describe(gpu: Gpu) -> str:
    return f"GPU {gpu.index}: {', '.join(part for part in (gpu.name, gpu.uuid, gpu.pci_bus_id) if part)}"

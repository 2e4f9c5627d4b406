from ddpdoctor.check import Check, Finding, Judgement, Passed, Skipped
from ddpdoctor.failures import Message
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import visible_gpus
from ddpdoctor.host.torch_build import TorchBuild

_OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest Linux driver for a major version of CUDA."""
_TOO_OLD = (
    r"CUDA driver version is insufficient|NVIDIA driver on your system is too old|unsupported toolchain"
    r"|not supported in the installed CUDA driver"
    r"|forward compatibility was attempted on non.supported|unsupported display driver / cuda driver combination"
    r"|CUDA Driver version found is \d+\. Minimum requirement"
)


class DriverTooOld(Check):
    """The NVIDIA driver is older than the CUDA that torch was built for.

    What it finds:
        torch was built for a higher major version of CUDA than the driver supports. A driver of the same major version
        (CUDA 12.8 on a driver for 12.2) or a newer one is correct. A forward compatibility package (cuda-compat) in
        LD_LIBRARY_PATH counts as the newer driver.

    Why it matters:
        A driver runs programs for its own major version of CUDA and older ones. torch then finds no usable GPU:
        torch.cuda.is_available() is False with a warning that the driver is too old. Scripts that fall back to the
        CPU run a hundred times slower, the others fail at the first .cuda().

    Example:
        pip install torch brings a build for CUDA 13; the driver is 550, which knows CUDA 12.4.

    Fix:
        Update the driver, or install the torch that is built for the driver's CUDA version (pytorch.org), which
        nvidia-smi shows.
    """

    code = "DD808"
    title = "the driver runs torch's CUDA"
    breaks_group = True
    messages = (
        Message(
            r"Found no NVIDIA driver on your system",
            headline="{rank} found no NVIDIA driver",
            why="The driver is not installed or not loaded on this host, or the container was started without it.",
            fix="nvidia-smi     # on the host first, then in the container\n"
            "docker run --gpus all ...; in Slurm --gres=gpu:N; in Kubernetes resources.limits nvidia.com/gpu",
        ),
        Message(
            r"[Dd]river/library version mismatch",
            headline="the NVIDIA driver's library and its kernel module are of different versions",
            why="The driver was updated while its old module stayed loaded, or a container brings another library.",
            fix="restart that node, then: cat /proc/driver/nvidia/version; nvidia-smi     # of one version",
        ),
        Message(_TOO_OLD, headline="the NVIDIA driver is too old for the CUDA that was loaded"),
    )

    def examine_host(self, host: Host) -> Judgement:
        if host.gpus.absent:
            return Skipped(host.gpus.absent)
        if host.torch is None:
            return Skipped("torch is not installed")
        if host.torch.cuda is None:
            return Skipped("this torch is built without CUDA")
        known = host.gpus.cuda_driver_version
        if not visible_gpus(host) or known is None:
            return Skipped("no GPU is visible" if known else "the driver does not report its CUDA version")
        if known[0] >= int(host.torch.cuda.partition(".")[0]):
            driver = f"driver {host.gpus.driver}, CUDA {known[0]}.{known[1]}"
            return Passed(f"{driver}; torch is built for CUDA {host.torch.cuda}")
        return self._too_old(host, f"{known[0]}.{known[1]}", host.torch)

    def _too_old(self, host: Host, known: str, torch: TorchBuild) -> Finding:
        oldest = _OLDEST_DRIVER.get(int((torch.cuda or "").partition(".")[0]))
        # Ranks on gloo do not need a GPU.
        report = self.fail if host.launch.backend == "nccl" else self.warn
        return report(
            f"driver {host.gpus.driver} supports CUDA {known}, and torch is built for CUDA {torch.cuda}",
            fix=(f"update the driver to {oldest} or later" if oldest else "update the driver")
            + f"; or install a torch for CUDA {known.partition('.')[0]} (pytorch.org)",
            evidence=(f"driver {host.gpus.driver}, CUDA {known}; torch {torch.version}",),
        )

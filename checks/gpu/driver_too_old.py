from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.model import Evidence, Family, Judgement, Passed, Skipped

_OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The first Linux driver that runs any CUDA program of a major version."""


class DriverTooOld(Check):
    """The NVIDIA driver is older than the CUDA that torch was built for.

    What it finds:
        torch was built for a higher major version of CUDA than the driver supports. Within one major version any
        driver of that version runs it (CUDA 12.8 on a driver for 12.2), and a newer driver runs every older CUDA;
        both are fine. A forward compatibility package (cuda-compat) in LD_LIBRARY_PATH counts as the newer driver.

    Why it matters:
        torch starts, and torch.cuda.is_available() is False with a warning that the driver is too old. Scripts
        that fall back to the CPU then run a hundred times slower, the others fail at the first .cuda().

    Example:
        pip install torch brings a build for CUDA 13; the driver is 550, which knows CUDA 12.4.

    Fix:
        Update the driver, or install the torch that is built for the driver's CUDA (the selector on pytorch.org).
    """

    code = "DD808"
    name = "driver-too-old"
    family = Family.GPU
    title = "the driver runs torch's CUDA"
    breaks_group = True

    def examine_host(self, host: Host) -> Judgement:
        if host.gpus.absent:
            return Skipped(host.gpus.absent)
        if host.torch is None:
            return Skipped("torch is not installed")
        if host.torch.cuda is None:
            return Skipped("this torch is built without CUDA")
        known = host.gpus.cuda_driver_version
        if known is None:
            return Skipped("the driver does not say which CUDA it supports")
        major = int(host.torch.cuda.partition(".")[0])
        driver = f"driver {host.gpus.driver}, CUDA {known[0]}.{known[1]}"
        if known[0] >= major:
            return Passed(f"{driver}; torch is built for CUDA {host.torch.cuda}")
        oldest = _OLDEST_DRIVER.get(major)
        return [
            self.fail(
                f"driver {host.gpus.driver} supports CUDA {known[0]}.{known[1]}, and torch is built for "
                f"CUDA {host.torch.cuda}",
                why=f"A driver runs programs of its own major version of CUDA and of older ones. This torch finds no "
                f"usable GPU: torch.cuda.is_available() is False, and CUDA {major} calls fail.",
                fix=(f"update the driver to {oldest} or later; or " if oldest else "update the driver; or ")
                + f"install a torch for CUDA {known[0]} (the selector on pytorch.org)",
                evidence=(Evidence(f"{driver}; torch {host.torch.version}"),),
            )
        ]

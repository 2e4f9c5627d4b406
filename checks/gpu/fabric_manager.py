from ddpdoctor.check import Check
from ddpdoctor.failures import Message

_FABRIC = (
    r"NVLink SHARP \(NVLS\).{0,80}(?:error|fail)|[Ff]abric [Mm]anager"
    r"|system not yet initialized|Cuda failure 802\b"
    r"|transport/nvls\.cc:\d+ (?:\([^)]*\) )?NCCL WARN (?!.*(?:out of memory|calloc|malloc))"
    r"|fail.{0,80}\bmulticast\b|\b[Mm]ulticast\w* .{0,40}fail|cuMulticast\w+ fail"
    r"|MNNVL .{0,80}not working|IMEX .{0,40}(?:error|fail)"
)


class FabricManager(Check):
    """The Fabric Manager service, which configures the NVSwitches, is missing or in a bad state.

    What it finds:
        Errors of CUDA or NCCL that the NVLink fabric is not initialized (CUDA error 802), or that multicast memory of
        NVLink SHARP cannot be bound.

    Why it matters:
        On machines with NVSwitches, GPUs work together only after nvidia-fabricmanager has configured the switches. It
        does not run, has another version than the driver, or failed after a GPU was reset.

    Example:
        Failed to bind NVLink SHARP (NVLS) Multicast memory ... CUDA error 401

    Fix:
        Look at the service, and restart it in the version of the driver:
            systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric
            systemctl restart nvidia-fabricmanager
        Until then, NCCL_NVLS_ENABLE=0 works without NVLink SHARP.
    """

    code = "DD804"
    title = "the NVLink fabric is ready"
    messages = (Message(_FABRIC, headline="the NVLink fabric of this machine was not ready"),)

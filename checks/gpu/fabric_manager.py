from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Judgement

_FABRIC = (
    r"NVLink SHARP \(NVLS\).{0,80}(?:error|fail)|[Ff]abric [Mm]anager"
    r"|system not yet initialized|Cuda failure 802\b"
    r"|transport/nvls\.cc:\d+ (?:\([^)]*\) )?NCCL WARN (?!.*(?:out of memory|calloc|malloc))"
    r"|fail.{0,80}\bmulticast\b|\b[Mm]ulticast\w* .{0,40}fail|cuMulticast\w+ fail"
    r"|MNNVL .{0,80}not working|IMEX .{0,40}(?:error|fail)"
)


class FabricManager(Check):
    """The Fabric Manager service, which runs the NVSwitches, is missing or in a bad state.

    What it finds:
        CUDA or NCCL that says that the NVLink fabric is not initialised (CUDA error 802), or that multicast memory of
        NVLink SHARP cannot be bound.

    Why it matters:
        On machines with NVSwitches no GPU works with another before nvidia-fabricmanager, in the driver's own version,
        has set the switches up.

    Example:
        Failed to bind NVLink SHARP (NVLS) Multicast memory ... CUDA error 401

    Fix:
        Restart the service, in the version of the driver; NCCL_NVLS_ENABLE=0 goes without NVLink SHARP meanwhile:
            systemctl restart nvidia-fabricmanager
    """

    code = "DD804"
    title = "the NVLink fabric is ready"
    raises = (_FABRIC,)
    log_words = (
        "NVLS",
        "ulticast",
        "transport/nvls.cc",
        "MNNVL",
        "IMEX",
        "abric Manager",
        "abric manager",
        "system not yet initialized",
        "Cuda failure",
    )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_FABRIC)
        return self.fail(
            "the NVLink fabric of this machine was not ready",
            why="NVSwitches are set up by nvidia-fabricmanager. It does not run, has another version than "
            "the driver, or left the fabric in a bad state after a GPU was reset.",
            fix="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric\n"
            "systemctl restart nvidia-fabricmanager     # or NCCL_NVLS_ENABLE=0 until then",
            **log_fields(reason),
        )

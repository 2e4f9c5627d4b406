from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import VARIABLE, visibility, visible_gpus
from ddpdoctor.host.nccl import is_on, nccl_setting
from ddpdoctor.model import Evidence, Family, Judgement, Passed, Skipped
from ddpdoctor.redact import show_value
from ddpdoctor.text import plural


class MoreRanksThanGpus(Check):
    """More ranks are launched on this node than it has visible GPUs.

    What it finds:
        The job runs on NCCL, and --nproc-per-node is higher than the number of GPUs that CUDA_VISIBLE_DEVICES
        leaves visible. On gloo, ranks may share a device or have none, and nothing is judged.

    Why it matters:
        NCCL gives each rank a GPU of its own. Two ranks on one GPU end with "Duplicate GPU detected" at the first
        collective, and a rank without one with "invalid device ordinal" in torch.cuda.set_device.

    Example:
        Two GPUs are visible, and four ranks start:
            CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 4 train.py

    Fix:
        torchrun --nproc-per-node gpu train.py     # one rank for each visible GPU
    """

    code = "DD801"
    name = "more-ranks-than-gpus"
    family = Family.GPU
    title = "one GPU for each rank"
    breaks_group = True

    def examine_host(self, host: Host) -> Judgement:
        nproc, backend = host.plan.nproc, host.plan.backend
        if host.gpus.absent:
            return Skipped(host.gpus.absent)
        if backend != "nccl":
            return Skipped(f"the backend is {backend}, whose ranks may share a device")
        if visibility(host).problem:
            return Skipped(f"{VARIABLE} is malformed (DD802)")
        if is_on(nccl_setting(host, "NCCL_MULTI_RANK_GPU_ENABLE")):
            return Skipped("NCCL_MULTI_RANK_GPU_ENABLE lets ranks share a GPU")
        visible = visible_gpus(host)
        if nproc <= len(visible):
            return Passed(f"{plural(nproc, 'rank')}, {plural(len(visible), 'visible GPU')}")
        value = host.environ.get(VARIABLE)
        present = f"{plural(len(host.gpus.devices), 'GPU')} in this machine"
        limit = f"{VARIABLE} is not set" if value is None else f"{VARIABLE}={show_value(VARIABLE, value)}"
        return [
            self.fail(
                f"{plural(nproc, 'rank')} on {plural(len(visible), 'visible GPU')}",
                why="NCCL needs a GPU of its own for each rank. Ranks that share one end with 'Duplicate GPU "
                "detected', ranks beyond the last one with 'invalid device ordinal'.",
                fix=f"torchrun --nproc-per-node {len(visible)} ..."
                if visible
                else f"unset {VARIABLE}; or run on the CPU with --backend gloo",
                evidence=(Evidence(f"{present}, {limit}"),),
            )
        ]

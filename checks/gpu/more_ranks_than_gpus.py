from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import VARIABLE, visibility, visible_gpus
from ddpdoctor.host.nccl_settings import is_on, nccl_setting
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.text import plural, ranks_phrase, show_value
from ddpdoctor.trace import Trace
from ddpdoctor.trace.gpus import places, ranks_of_host, shared
from ddpdoctor.trace.raised import raised_as, raised_by, with_victims

_DUPLICATE = r"Duplicate GPU detected ?: rank (\d+) and rank (\d+) both on (?:CUDA )?device (\w+)"


class MoreRanksThanGpus(Check):
    """More ranks are launched on this node than it has visible GPUs.

    What it finds:
        The job uses NCCL, and --nproc-per-node is higher than the number of visible GPUs; or two ranks use the same
        GPU. On gloo, ranks may share a GPU or have none, so nothing is reported.

    Why it matters:
        NCCL needs one GPU for each rank. Two ranks on one GPU, because there are more ranks than GPUs or the script
        does not select the GPU by LOCAL_RANK, fail with "Duplicate GPU detected" at the first collective; a rank
        without a GPU fails with "invalid device ordinal" in torch.cuda.set_device.

    Example:
        Two GPUs are visible, and four ranks start:
            CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 4 train.py

    Fix:
        Start one rank for each visible GPU, and set the device before init_process_group:
            torchrun --nproc-per-node gpu train.py
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    """

    code = "DD801"
    title = "one GPU for each rank"
    breaks_group = True
    raises = (_DUPLICATE,)

    def examine_host(self, host: Host) -> Judgement:
        if reason := _why_not(host):
            return Skipped(reason)
        nproc, visible = host.launch.nproc, visible_gpus(host)
        lost = [gpu for gpu in visibility(host).gpus if gpu.lost]
        if nproc <= len(visible):
            return Passed(f"{plural(nproc, 'rank')}, {plural(len(visible), 'visible GPU')}")
        if nproc <= len(visible) + len(lost):
            return Skipped(f"GPU {lost[0].index} does not answer (DD805)")
        return self._too_many(host, len(visible))

    def examine_run(self, trace: Trace) -> Judgement:
        if raised := raised_as(trace, *self.raises):
            return self.fail(
                f"{ranks_phrase(with_victims(trace, raised))} found two ranks on one GPU",
                **raised_by(trace, raised),
            )
        by_rank = places(trace)
        for ranks in shared(by_rank):
            first = by_rank[ranks[0]]
            device, visible = first.device, plural(first.device.visible, "visible GPU")
            if device.visible < ranks_of_host(by_rank, first.host):
                return self.fail(
                    f"{ranks_phrase(ranks)} share GPU {first.gpu[1]}: {plural(len(by_rank), 'rank')} on {visible}",
                    where=device.at,
                    evidence=(Evidence(f"cuda:{device.index}, of {visible}", ranks),),
                )
        gpus = {place.gpu for place in by_rank.values()}
        return Passed(f"{plural(len(by_rank), 'rank')} on {plural(len(gpus), 'GPU')}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_DUPLICATE)
        first, second, gpu = reason.match.groups()
        ranks = sorted((int(first), int(second)))
        return self.fail(f"{ranks_phrase(ranks)} used the same GPU, {gpu}", **log_fields(reason, ranks=ranks))

    def _too_many(self, host: Host, visible: int) -> Finding:
        value = host.environ.get(VARIABLE)
        present = f"{plural(len(host.gpus.devices), 'GPU')} in this machine"
        limit = f"{VARIABLE} is not set" if value is None else f"{VARIABLE}={show_value(VARIABLE, value)}"
        return self.fail(
            f"{plural(host.launch.nproc, 'rank')} on {plural(visible, 'visible GPU')}",
            fix=f"torchrun --nproc-per-node {visible} ..."
            if visible
            else f"unset {VARIABLE}; or run on the CPU with --backend gloo",
            evidence=(f"{present}, {limit}",),
        )


def _why_not(host: Host) -> str | None:
    if host.gpus.absent:
        return host.gpus.absent
    if host.launch.backend != "nccl":
        return f"the backend is {host.launch.backend}, whose ranks may share a GPU"
    if visibility(host).problem:
        return f"{VARIABLE} is malformed (DD802)"
    if is_on(nccl_setting(host, "NCCL_MULTI_RANK_GPU_ENABLE")):
        return "NCCL_MULTI_RANK_GPU_ENABLE lets ranks share a GPU"
    return None

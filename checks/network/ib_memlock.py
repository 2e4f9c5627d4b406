from ddpdoctor.check import Check, Judgement, Passed, Skipped
from ddpdoctor.failures import Message
from ddpdoctor.host import Host
from ddpdoctor.host.infiniband import DEVICES
from ddpdoctor.host.nccl_settings import is_on, nccl_setting
from ddpdoctor.text import plural, size

ENOUGH = 1 << 30
"""NCCL locks megabytes for each channel and peer; a limit of this size is high enough."""
_CAP_IPC_LOCK = 1 << 14


class IbMemlock(Check):
    """The limit on locked memory is too low for InfiniBand or RoCE.

    What it finds:
        This machine has an RDMA adapter, the job uses NCCL, and RLIMIT_MEMLOCK (ulimit -l) is small, usually 64 KiB or
        8 MiB. A failure in a job of several nodes, information on one node, where NCCL does not use the adapter. A
        process that may lock memory without limit (CAP_IPC_LOCK) passes.

    Why it matters:
        NCCL registers its buffers with the adapter, which locks them in memory. Above the limit the kernel refuses,
        and NCCL fails with "ibv_reg_mr failed: Cannot allocate memory", although the machine has free memory. The
        limit is that of the process that starts the ranks (sshd, slurmd, the container), not of a login shell.

    Example:
        A container that was started with docker's default limits:
            $ ulimit -l
            8192

    Fix:
        In a container: docker run --ulimit memlock=-1 --cap-add IPC_LOCK ...
        Under Slurm: PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, LimitMEMLOCK=infinity for slurmd.
        Elsewhere, in /etc/security/limits.conf:
            * soft memlock unlimited
            * hard memlock unlimited
    """

    code = "DD704"
    title = "locked memory is enough for InfiniBand"
    breaks_group = True
    messages = (
        Message(
            r"ibv_(?:reg_mr|create_[cq][qp])\w* failed.{0,40}Cannot allocate memory|RLIMIT_MEMLOCK|locked memory limit",
            headline="InfiniBand could not register memory: the limit on locked memory is too low",
        ),
    )

    def examine_host(self, host: Host) -> Judgement:
        devices = {port.device for port in host.infiniband}
        self.require(devices, "this machine has no InfiniBand or RoCE adapter")
        if host.launch.backend != "nccl":
            return Skipped(f"the backend is {host.launch.backend}, which does not use InfiniBand")
        self.require(not is_on(nccl_setting(host, "NCCL_IB_DISABLE")), "NCCL_IB_DISABLE is set")
        soft, hard = host.system.rlimit("MEMLOCK")
        if soft == -1 or soft >= ENOUGH:
            return Passed(f"locked memory is {'unlimited' if soft == -1 else f'limited to {size(soft)}'}")
        if _may_lock_anything(host):
            return Passed("this process may lock memory without limit (CAP_IPC_LOCK)")
        report = self.fail if host.launch.nnodes > 1 else self.info
        count = plural(len(devices), "InfiniBand or RoCE adapter")
        return report(
            f"locked memory is limited to {size(soft)}, and this machine has {count}",
            fix=_fix(hard),
            evidence=(f"adapters in {DEVICES}: {', '.join(sorted(devices))}",),
        )


def _may_lock_anything(host: Host) -> bool:
    for line in (host.system.read_text("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) & _CAP_IPC_LOCK)
    return False


def _fix(hard: int) -> str:
    if hard == -1:
        return "ulimit -l unlimited     # in the shell or job script that starts the ranks"
    return (
        "docker run --ulimit memlock=-1 ...; or 'memlock unlimited', soft and hard, in "
        "/etc/security/limits.conf, and a new login"
    )

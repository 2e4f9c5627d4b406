from collections.abc import Mapping
from typing import Any

from ddpdoctor.check import Check, Finding, Judgement, Passed, Skipped
from ddpdoctor.failures import Message
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import VARIABLE, visibility
from ddpdoctor.recorder.events.process import Device
from ddpdoctor.text import fold_ranks, plural, quote, show_value
from ddpdoctor.trace import Recording, Trace, by_line, on_ranks
from ddpdoctor.trace.raised import by_messages
from ddpdoctor.unreached.state import devices_by_rank

_WRONG_NUMBER: dict[str, Any] = {
    "why": "GPUs are numbered from 0 in each process, among those that are visible to it. The global rank is not "
    "such a number on a second node, and LOCAL_RANK is not where the scheduler shows each task one GPU.",
    "fix": 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())\n'
    "Slurm: --gpus-per-node instead of --gpus-per-task; look at CUDA_VISIBLE_DEVICES in each rank",
}
_HIDDEN = {
    "why": f"The script sets {VARIABLE} itself: every rank sees the GPUs that it lists and no others, numbered from 0.",
    "fix": f"Delete the line of the script that sets {VARIABLE}, and choose GPUs where the job is started:\n"
    f"    {VARIABLE}=0,1 torchrun --nproc-per-node 2 train.py",
}


class DeviceOrdinal(Check):
    """A rank selects a GPU that it does not have, or CUDA_VISIBLE_DEVICES is malformed.

    What it finds:
        A rank that selects a GPU number that its process does not have, or the number of its rank among those of all
        hosts. In CUDA_VISIBLE_DEVICES: a number that no GPU of this machine has, a GPU named twice, a range (0-3), a
        separator other than the comma, a word, an identifier of another machine. Identifiers (GPU-..., MIG-..., also
        abbreviated) are correct, and so are an empty value and -1, which hide all GPUs on purpose.

    Why it matters:
        The GPUs of each process are numbered from 0: the rank among those of all hosts is no such number on a second
        host, where ranks fail with "invalid device ordinal". In CUDA_VISIBLE_DEVICES, CUDA reports no error: it ignores
        the list from the first entry that it cannot use, shows no GPU if one is named twice, and reads "0-3" as 0.

    Example:
        export CUDA_VISIBLE_DEVICES=0-3     # GPU 0 alone

    Fix:
        Choose the GPU by the rank on this host, and list the numbers that nvidia-smi shows, separated by commas:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            export CUDA_VISIBLE_DEVICES=0,1,2,3
    """

    code = "DD802"
    title = "CUDA_VISIBLE_DEVICES names this machine's GPUs"
    breaks_group = True
    messages = (
        Message(
            r"invalid device ordinal|You requested gpu: .{1,80}\s+But your machine only has|Invalid device id"
            r"|invalid (?:CUDA )?device (?:index|number)",
            headline="{rank} used a GPU number that the process does not have",
            **_WRONG_NUMBER,
        ),
        Message(r"No CUDA GPUs are available", headline="no GPU is visible to {rank}", **_WRONG_NUMBER),
    )
    unreached = (devices_by_rank, "the GPU is chosen by {name}, the rank among those of all hosts")

    def examine_host(self, host: Host) -> Judgement:
        if host.gpus.absent:
            return Skipped(host.gpus.absent)
        value = host.environ.get(VARIABLE)
        if value is None:
            return Passed(f"{VARIABLE} is not set: {plural(len(host.gpus.devices), 'GPU')} visible")
        visible = visibility(host)
        shown = f"{VARIABLE}={show_value(VARIABLE, value)}"
        if visible.problem is None:
            return Passed(f"{shown}: {plural(len(visible.gpus), 'GPU')} visible")
        everything = ",".join(str(gpu.index) for gpu in host.gpus.devices)
        which = f"GPU {fold_ranks(gpu.index for gpu in visible.gpus)}" if visible.gpus else "no GPU"
        return self.fail(
            f"{shown} {visible.problem}",
            why=f"CUDA ignores the list from the entry that it cannot use and reports no error: it shows {which} to "
            "the ranks. Those that need more fail with 'invalid device ordinal', or share a GPU.",
            fix=f"export {VARIABLE}={everything}",
            evidence=[f"GPU {gpu.index}: {gpu.name}, {gpu.uuid}" for gpu in host.gpus.devices],
        )

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        asked = by_line((rank, it) for rank, own in recordings.items() for it in own.devices if not it.valid)
        if asked:
            return [self._not_visible(devices, recordings) for devices in asked]
        if finding := by_messages(self, trace):
            return finding
        if not any(recording.devices for recording in recordings.values()):
            return Skipped("only a rehearsal notes which rank uses which GPU (--rehearse)")
        return Passed("each rank used GPUs that it has")

    def _not_visible(self, asked: Mapping[int, Device], recordings: Mapping[int, Recording]) -> Finding:
        rank, first = next(iter(asked.items()))
        hidden = first.variable is not None and first.variable != recordings[rank].environ.get(VARIABLE)
        of_all = f": the script sets {VARIABLE}={quote(first.variable or '')}" if hidden else ""
        return self.fail(
            f"rank {rank} used cuda:{first.index}, and its process sees {plural(first.visible, 'GPU')}{of_all}",
            **(_HIDDEN if hidden else _WRONG_NUMBER),
            **on_ranks(asked, lambda it: f"cuda:{it.index} of {plural(it.visible, 'visible GPU')}"),
        )

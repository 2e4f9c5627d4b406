import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Kind, Passed, Role, Skipped
from ddpdoctor.host import Host
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.text import plural, quote, ranks_phrase, shorten, size
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import raised_as, raised_by

PROBE_BYTES = 1 << 20
TIGHT_BYTES = 1 << 30
"""Less than a checkpoint with optimizer state of a model of 90 million parameters."""
TIGHT_INODES = 100
_FULL = (
    r"No space left on device|[Dd]isk quota exceeded|PytorchStreamWriter failed writing|file write failed"
    r"|inline_container\.cc:\d+\] \. unexpected pos"
)
_EVICTED = r"ephemeral local storage usage exceeds|low on resource: ephemeral-storage"
_READ_ONLY = r"Read-only file system"
_UNWRITABLE = rf"{_READ_ONLY}|Parent directory .{{1,200}} does not exist"
_SHARED_MEMORY = re.compile(r"/dev/shm|shared memory|posix_fallocate|shm", re.IGNORECASE)
_DENIED = r"^PermissionError: "
"""Also raised by reads; the path in the message and the recorded writes tell them apart."""

_TEXTS_FULL = {
    "why": "A write failed before its end. The file on the disk is incomplete, and a resume would load it.",
    "fix": "df -h FOLDER; quota -s\nremove the incomplete file and keep fewer checkpoints; write to a temporary name, "
    "and rename the file when it is complete",
}
_TEXTS_EVICTED = {
    "why": "The logs of a pod, its emptyDir volumes and what its containers write outside of volumes share the disk of "
    "the node. Over the limit, or where the node has little left, Kubernetes ends the pod.",
    "fix": "write checkpoints, data and caches (HF_HOME, TORCH_HOME, TMPDIR) to a mounted volume, or ask for more:\n"
    "resources: {requests: {ephemeral-storage: 100Gi}, limits: {ephemeral-storage: 100Gi}}",
}
_TEXTS_READ_ONLY = {
    "why": "The folder is mounted read-only on this node: by a volume or bind mount that says so (:ro), or by the "
    "kernel after an error of the disk.",
    "fix": "findmnt -T FOLDER; dmesg -T | grep -i remount     # how it is mounted, and since when\n"
    "write to another folder, or mount it with rw",
}
_TEXTS_UNWRITABLE = {
    "why": "The output folder does not exist on this node, or this user may not write there.",
    "fix": "create it on every rank before the first write: Path(folder).mkdir(parents=True, exist_ok=True)",
}


class DiskUnusable(Check):
    """The folder for checkpoints is missing, is a file, cannot be written, or is full.

    What it finds:
        A checkpoint folder that does not exist or is a file; one where writing 1 MiB fails, because of permissions, a
        read-only mount, a full disk, a quota or no free inodes; and one with little space left. The check writes a
        file and removes it, so that the result is right for root, too.

    Why it matters:
        The first checkpoint is saved after minutes or hours. Rank 0 then fails to write it while the others wait for
        it in the barrier, and the work up to there is lost.

    Example:
        The output folder is a read-only mount of the container:
            torch.save(model.state_dict(), "/data/out/model.pt")   # OSError: [Errno 30] Read-only file system

    Fix:
        Choose a folder that every node can write to and that has enough free space:
            ddpdoctor check --checkpoint-dir /scratch/run1
    """

    code = "DD019"
    title = "the checkpoint folder can be written"
    raises = (_FULL, _UNWRITABLE, _DENIED)
    log_words = ("ephemeral",)

    def examine_host(self, host: Host) -> Judgement:
        folder, system = host.launch.checkpoint_dir, host.system
        if not system.exists(folder):
            why = (
                "torch.save does not create folders, so the first checkpoint fails on the rank that saves it."
            )
            return self._unusable(host, self.fail, "does not exist", why=why, fix=f"mkdir -p {quote(folder)}")
        if not system.is_dir(folder):
            return self._unusable(host, self.fail, "is a file")
        if error := system.write_probe(folder, PROBE_BYTES):
            full = error in (errno.ENOSPC, errno.EDQUOT)
            problem = "is full" if full else f"cannot be written: {os.strerror(error).lower()}"
            probed = Evidence(f"writing {size(PROBE_BYTES)} ended with {errno.errorcode[error]}")
            return self._unusable(host, self.fail, problem, evidence=(probed, *_space(host)))
        disk = system.disk(folder)
        few = disk is not None and 0 <= disk.free_inodes < TIGHT_INODES
        if disk and (few or disk.free < TIGHT_BYTES):
            left = f"{disk.free_inodes} inodes" if few else size(disk.free)
            why = (
                "A checkpoint with optimizer state takes 12 bytes for each parameter, and the old one is kept while "
                "the new one is written."
            )
            return self._unusable(host, self.info, f"has {left} left", why=why, evidence=_space(host))
        return Passed(f"{quote(folder)} can be written" + (f", {size(disk.free)} free" if disk else ""))

    def _unusable(self, host: Host, report: Callable[..., Finding], problem: str, **details: Any) -> Finding:
        folder = host.launch.checkpoint_dir
        return report(f"checkpoint folder {quote(folder)} {problem}", about=Kind.PATH.of(folder), **details)

    def examine_run(self, trace: Trace) -> Judgement:
        errors = raised_as(trace, *self.raises)
        raised = {rank: error for rank, error in errors.items() if _is_of_write(trace, rank, error)}
        if raised:
            message = next(iter(raised.values())).message
            texts = _TEXTS_FULL if re.search(_FULL, message) else _texts_unwritable(message)
            return self.fail(
                f"{ranks_phrase(raised)} could not write a file: {quote(shorten(message.splitlines()[0]))[1:-1]}",
                **texts,
                **raised_by(trace, raised, ranks=raised),
            )
        trace.require_end()
        saves = (save for recording in trace.recordings().values() for save in recording.saves)
        paths = {save.path for save in saves if save.path}
        return Passed(f"{plural(len(paths), 'checkpoint')} written") if paths else Skipped("none was written")

    def examine_log(self, log: Log) -> Judgement:
        if reason := log.search(_EVICTED):
            headline = "Kubernetes evicted the pod, since its node ran out of ephemeral storage"
            return self.fail(headline, **_TEXTS_EVICTED, **log_fields(reason, role=Role.SYSTEM))
        reason = log.search(_FULL)
        if reason and not _SHARED_MEMORY.search(reason.match.string):
            vague = "write failed" in reason.match[0] or "unexpected pos" in reason.match[0]
            return self.fail(
                "a file could not be written to its end: the disk or the quota is full",
                confidence=Confidence.LIKELY if vague else Confidence.CERTAIN,
                **_TEXTS_FULL,
                **log_fields(reason),
            )
        reason = log.reason(_UNWRITABLE)
        headline = f"a file could not be written: {reason.match[0]}"
        return self.fail(headline, **_texts_unwritable(reason.match[0]), **log_fields(reason))


def _texts_unwritable(message: str) -> dict[str, str]:
    return _TEXTS_READ_ONLY if re.search(_READ_ONLY, message) else _TEXTS_UNWRITABLE


def _space(host: Host) -> tuple[Evidence, ...]:
    disk = host.system.disk(host.launch.checkpoint_dir)
    if disk is None:
        return ()
    inodes = f", {disk.free_inodes} inodes free" if disk.free_inodes >= 0 else ""
    return (Evidence(f"{size(disk.free)} of {size(disk.total)} free{inodes}"),)


def _is_of_write(trace: Trace, rank: int, raised: Raised) -> bool:
    """Whether a write raised it; where a read can raise it, too, the file that it names has to be written."""
    if _SHARED_MEMORY.search(raised.message):
        return False
    if not re.search(_DENIED, f"{raised.type}: {raised.message}"):
        return True
    recording = trace.recordings()[rank]
    written = {event.path for event in recording.files} | {save.path for save in recording.saves if save.path}
    return any(Path(path).name in raised.message for path in written)

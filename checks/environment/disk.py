import errno
import os
import re
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.host import Host
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Reason, log_fields
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Kind, Passed, Skipped
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.redact import quote
from ddpdoctor.text import plural, ranks_phrase, shorten, size
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import raised_as, raised_by

PROBE_BYTES = 1 << 20
TIGHT_BYTES = 1 << 30
"""Less than a checkpoint with optimizer state of a model of 90 million parameters."""
TIGHT_INODES = 100
_FULL = (
    r"No space left on device|[Dd]isk quota exceeded|PytorchStreamWriter failed writing|file write failed"
    r"|inline_container\.cc:\d+\] \. unexpected pos"
    r"|ephemeral local storage usage exceeds|low on resource: ephemeral-storage"
)
_UNWRITABLE = r"Read-only file system|Parent directory .{1,200} does not exist"
_SHARED_MEMORY = re.compile(r"/dev/shm|shared memory|posix_fallocate|shm", re.IGNORECASE)

_DENIED = r"^PermissionError: "
"""Said of reading, too; what was written tells them apart."""
_WHY_FULL = "The write failed in the middle. What is on the disk is cut off, and a resume would pick it."
_FIX_FULL = (
    "df -h FOLDER; quota -s\nremove the cut-off file and keep fewer checkpoints; write to a temporary name "
    "and rename it when it is complete"
)
_WHY_UNWRITABLE = "The folder for the output does not exist on this node, or does not let this user write."
_FIX_UNWRITABLE = (
    "create it on every rank before the first write: Path(folder).mkdir(parents=True, exist_ok=True)"
)


class DiskUnusable(Check):
    """The folder for checkpoints is missing, is a file, cannot be written, or is full.

    What it finds:
        A checkpoint folder that is not there or is a file; one where writing 1 MiB fails, because of permissions, a
        read-only mount, a full disk, a quota or no free inodes; and one with little space left. It writes a file
        and removes it, so that root is not fooled by permission bits.

    Why it matters:
        The first checkpoint comes after minutes or hours. Rank 0 fails to write it while the others wait for it in
        the barrier, and the work up to there is lost.

    Example:
        The output folder is a read-only mount of the container:
            torch.save(model.state_dict(), "/data/out/model.pt")   # OSError: [Errno 30] Read-only file system

    Fix:
        Choose a folder that every node can write, and free enough of it:
            ddpdoctor check --checkpoint-dir /scratch/run1
    """

    code = "DD019"
    title = "the checkpoint folder can be written"
    raises = (_FULL, _UNWRITABLE, _DENIED)
    log_words = (
        "No space left", "quota exceeded", "Read-only file system", "file write failed",
        "PytorchStreamWriter", "ephemeral",
    )  # fmt: skip

    def examine_host(self, host: Host) -> Judgement:
        folder, system = host.launch.checkpoint_dir, host.system
        if not system.exists(folder):
            return self.fail(
                f"checkpoint folder {quote(folder)} does not exist",
                why="torch.save does not create folders, so the first checkpoint fails on the rank that "
                "writes it while the others wait.",
                fix=f"mkdir -p {quote(folder)}",
                about=Kind.PATH.of(folder),
            )
        if not system.is_dir(folder):
            return self.fail(
                f"checkpoint folder {quote(folder)} is a file",
                why="No checkpoint can be written below a file, so the first one fails on the rank that writes it.",
                fix="choose another folder: --checkpoint-dir FOLDER",
                about=Kind.PATH.of(folder),
            )
        failed = system.write_probe(folder, PROBE_BYTES)
        if failed:
            return self._unwritable(host, failed)
        disk = system.disk(folder)
        if disk and (disk.free < TIGHT_BYTES or 0 <= disk.free_inodes < TIGHT_INODES):
            return self._tight(host)
        return Passed(f"{quote(folder)} can be written" + (f", {size(disk.free)} free" if disk else ""))

    def examine_run(self, trace: Trace) -> Judgement:
        raised = {
            rank: error
            for rank, error in raised_as(trace, *self.raises).items()
            if _wrote(trace, rank, error)
        }
        if not raised:
            if trace.broken:
                raise NotMeasured(trace.broken)
            saved = [
                save.path
                for recording in trace.recordings().values()
                for save in recording.saves
                if save.path
            ]
            return (
                Passed(f"{plural(len(set(saved)), 'checkpoint')} written")
                if saved
                else Skipped("none was written")
            )
        first = next(iter(raised.values()))
        why, fix = (
            (_WHY_FULL, _FIX_FULL) if re.search(_FULL, first.message) else (_WHY_UNWRITABLE, _FIX_UNWRITABLE)
        )
        return self.fail(
            f"{ranks_phrase(raised)} could not write a file: {quote(shorten(first.message.splitlines()[0]))[1:-1]}",
            why=why,
            fix=fix,
            **raised_by(trace, raised, ranks=raised),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_FULL)
        if reason and not _SHARED_MEMORY.search(reason.match.string):
            return self.fail(
                "a file could not be written to its end: the disk or the quota is full",
                why=_WHY_FULL,
                fix=_FIX_FULL,
                confidence=Confidence.LIKELY
                if "write failed" in reason.match[0] or "unexpected pos" in reason.match[0]
                else Confidence.CERTAIN,
                **log_fields(reason),
            )
        reason = log.search(_UNWRITABLE)
        return self._told_unwritable(reason) if reason else NOT_IN_OUTPUT

    def _told_unwritable(self, reason: Reason) -> Finding:
        return self.fail(
            f"a file could not be written: {reason.match[0]}",
            why=_WHY_UNWRITABLE,
            fix=_FIX_UNWRITABLE,
            **log_fields(reason),
        )

    def _unwritable(self, host: Host, error: int) -> Finding:
        folder = host.launch.checkpoint_dir
        full = error in (errno.ENOSPC, errno.EDQUOT)
        reason = os.strerror(error).lower()
        return self.fail(
            f"checkpoint folder {quote(folder)} is full"
            if full
            else f"checkpoint folder {quote(folder)} cannot be written: {reason}",
            why="The first checkpoint fails on the rank that writes it, after the steps that lead to it, "
            "while the others wait in the barrier.",
            fix="free space there, or choose another folder: --checkpoint-dir FOLDER"
            if full
            else "choose a folder that this user can write: --checkpoint-dir FOLDER",
            evidence=(
                Evidence(f"writing {size(PROBE_BYTES)} ended with {errno.errorcode[error]}"),
                *_space(host),
            ),
            about=Kind.PATH.of(folder),
        )

    def _tight(self, host: Host) -> Finding:
        folder, disk = host.launch.checkpoint_dir, host.system.disk(host.launch.checkpoint_dir)
        few = disk is not None and 0 <= disk.free_inodes < TIGHT_INODES
        left = f"{disk.free_inodes} inodes" if disk and few else size(disk.free if disk else 0)
        return self.info(
            f"checkpoint folder {quote(folder)} has {left} left",
            why="A checkpoint with optimizer state takes 12 bytes for each parameter, and the old one is "
            "kept while the new one is written.",
            fix="free space there, or choose another folder: --checkpoint-dir FOLDER",
            evidence=_space(host),
            about=Kind.PATH.of(folder),
        )


def _space(host: Host) -> tuple[Evidence, ...]:
    disk = host.system.disk(host.launch.checkpoint_dir)
    if disk is None:
        return ()
    inodes = f", {disk.free_inodes} inodes free" if disk.free_inodes >= 0 else ""
    return (Evidence(f"{size(disk.free)} of {size(disk.total)} free{inodes}"),)


def _wrote(trace: Trace, rank: int, raised: Raised) -> bool:
    """Whether it was about to write: what may be said of reading as well is told by the file that is named."""
    if _SHARED_MEMORY.search(raised.message):
        return False
    if not re.search(_DENIED, f"{raised.type}: {raised.message}"):
        return True
    recording = trace.recordings()[rank]
    written = {event.path for event in recording.files} | {save.path for save in recording.saves if save.path}
    return any(Path(path).name in raised.message for path in written)

import re

from ddpdoctor.check import Check, Finding, Judgement, Kind, Passed
from ddpdoctor.failures import Message
from ddpdoctor.recorder.events.files import Load
from ddpdoctor.text import plural, quote, ranks_phrase, shorten
from ddpdoctor.trace import Recording, Trace, by_key, on_each_rank, on_ranks
from ddpdoctor.trace.files import read_last
from ddpdoctor.trace.instances import files

ERRORS = (
    r"PytorchStreamReader failed (reading|finding|locating)",
    r"failed finding central directory",
    r"unexpected EOF, expected \d+ more bytes",
    r"EOFError: Ran out of input",
    r"storage has wrong byte size",
    r"UnpicklingError: (pickle data was truncated|invalid load key, '\\x00')",
    r"deserializing header: (?:MetadataIncompleteBuffer|incomplete metadata|HeaderTooSmall|header too small)",
    r"UnpicklingError: Weights only load failed(?s:.)*pickle data was truncated",
)
OF_A_READ = (r"OSError: \[Errno 22\] Invalid argument",)
"""What torch 2.13 says of a short file; elsewhere it may mean anything."""


class CheckpointTruncated(Check):
    """A checkpoint that is read is not complete.

    What it finds:
        torch.load calls that fail in the way in which incomplete files do (no central directory, end of file,
        wrong size), where the script ends by it. A script that catches the error and takes an older checkpoint is
        left alone. Where the file is still being written by another rank, or by several, that is reported instead.

    Why it matters:
        A job that is killed while it saves, or a full disk, leaves part of a file under the name of the whole. The
        next job resumes from it and fails, and so does every one after it.

    Example:
        torch.save(state, "last.pt")            # the time limit of the job comes in the middle

    Fix:
        Write beside it and rename, which is all or nothing, and keep the one before:
            torch.save(state, "last.pt.part")
            os.replace("last.pt.part", "last.pt")
    """

    code = "DD404"
    title = "checkpoints that are read are complete"
    _headline = "a checkpoint is not complete, so it cannot be read"
    messages = (Message("|".join((*ERRORS, *OF_A_READ)), headline=_headline),)
    explained_by = ("DD401", "DD402")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        if broken := by_key(on_each_rank(recordings, _fatal), lambda load: load.path):
            return [self._broken(loads) for loads in broken]
        loads = sum(len(recording.loads) for recording in recordings.values())
        self.require(loads, "no checkpoint was read")
        return Passed(f"{plural(loads, 'read')} of complete checkpoints")

    def _broken(self, broken: dict[int, Load]) -> Finding:
        path = next(iter(broken.values())).path
        return self.fail(
            f"{files([path]) if path else 'a checkpoint'} is not complete, so {ranks_phrase(broken)} cannot read it",
            **on_ranks(broken, lambda load: quote(shorten(load.error or ""))),
            about=Kind.PATH.of(path) if path else (),
            explained_by=("DD020",) if path else (),
        )


def _fatal(recording: Recording) -> list[Load]:
    """The read by whose error the script ended; empty where it was none."""
    if recording.raised is None:
        return []
    exception = f"{recording.raised.type}: {recording.raised.message}"
    failed = [load for load in recording.loads if load.error]
    if any(re.search(pattern, exception) for pattern in ERRORS):
        read = read_last(recording)
        path = read.path if read else ""
        return failed[-1:] or [Load(path, recording.raised.at, recording.raised.time, error=exception)]
    return failed[-1:] if any(re.search(pattern, exception) for pattern in OF_A_READ) else []

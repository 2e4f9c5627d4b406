"""The exceptions in which ranks of a run ended."""

import re
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from ddpdoctor.blame.frames import frames_of, innermost_of_script
from ddpdoctor.check import Check
from ddpdoctor.judge import of_message
from ddpdoctor.model import Evidence, Finding, Where
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.redact import quote
from ddpdoctor.text import by_state, shorten
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording

_IN_WORKER = re.compile(
    r"Original Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)+)(?P<type>[\w.]+)(?:: (?P<message>.*))?"
)
"""In the message of what a rank raises for its DataLoader worker."""
REFUSED = r"(?s)Weights only load failed(?!.*Unsupported operand 80\b)"
"""torch.load, of what is whole and holds more than tensors; the first byte of a partial file is the operand 80."""
_REMEDIES = {
    REFUSED: "torch.load(path, map_location='cpu', weights_only=False)     # of files that you "
    "trust\nor save tensors, numbers and text alone: since torch 2.6 nothing else is read by default",
    r"\[Errno \d+\] .{0,200}/(?:\.triton|triton|torchinductor_\w+)/": "export TRITON_CACHE_DIR=/tmp/triton "
    "TORCHINDUCTOR_CACHE_DIR=/tmp/inductor     # on a disk of each host: on a network file system, hosts replace each "
    "other's files",
    r"'\w*DataParallel' object has no attribute": "model.module.NAME     # of what it wraps; to train, call model(...)",
    r"subprocesses has abruptly died": "dmesg -T | grep -i 'killed process'     # mostly it was the host's memory\n"
    "use fewer processes: num_proc=4",
    r"undefined symbol: ": "the extension was built for another torch or CUDA; build it for this one:\n"
    "pip install --force-reinstall --no-cache-dir --no-build-isolation PACKAGE",
    r"\[Errno 13\]": "id; ls -ld FOLDER     # whom the folder lets write\nexport HOME=/tmp HF_HOME=/data/hf     "
    "# caches of libraries are below HOME",
    r"\[Errno (?:5|107|108|116|121)\]": "on the host of that rank: df -h FOLDER; dmesg -T | grep -i -e nfs -e lustre "
    "-e fuse -e 'I/O error'\nmount the file system again there; if the file was replaced while ranks read it, write "
    "the new one under another name",
    r"wait timeout after \d+ms, keys:": "set the key on another rank, before anything that may fail there: "
    "store.set(key, value)\ndist.broadcast_object_list([value], src=0)     # without a key, on every rank",
    r"start a new process before the\s+current process has finished its bootstrapping": "if __name__ == '__main__':    "
    "# at the end of the script, around everything that starts processes or trains\n    main()",
}
"""What helps against exceptions that have nothing to do with the line they are raised at, by the message."""
_INDICES = re.compile(r"did not receive grad for rank \d+:((?: \d+)+)")


def raised_as(trace: Trace, *patterns: str) -> dict[int, Raised]:
    """The exceptions that match one of some regular expressions, by rank, the earliest first."""
    exceptions = {
        rank: recording.raised
        for rank, recording in trace.recordings().items()
        if recording.raised and not recording.raised.of_rehearsal
    }
    matching = {
        rank: raised
        for rank, raised in exceptions.items()
        if any(re.search(pattern, f"{raised.type}: {raised.message}") for pattern in patterns)
    }
    return dict(sorted(matching.items(), key=lambda item: item[1].time))


def by_messages(check: Check, trace: Trace) -> Finding | None:
    """What a check says of the exceptions of ranks that its messages know; None where no rank raised one."""
    for message in check.messages:
        if raised := raised_as(trace, message.pattern):
            first = next(iter(raised.values()))
            match = re.search(message.pattern, f"{first.type}: {first.message}")
            return of_message(check, message, match, raised_by(trace, raised)) if match else None
    return None


def raised_by(
    trace: Trace, raised: Mapping[int, Raised], *, ranks: Iterable[int] | None = None
) -> dict[str, Any]:
    """The fields of a finding that rests on these exceptions, ranks, where and evidence; victims among the ranks."""
    return {
        "ranks": with_victims(trace, raised) if ranks is None else tuple(sorted(ranks)),
        "where": place(trace, raised),
        "evidence": last_lines(raised),
    }


def place(trace: Trace, raised: Mapping[int, Raised]) -> Where | None:
    """The line of the first of them: of the wrap, where DDP's constructor raised it; of a worker, where that did."""
    rank, first = next(iter(raised.items()))
    if at := place_in_worker(first.message):
        return at
    text = f"{first.type}: {first.message}"
    failed = (wrapper for wrapper in trace.recordings()[rank].wrappers if wrapper.failed)
    return next((wrap.at for wrap in failed if text.startswith(wrap.failed or "")), first.at)


def as_raised(kind: str, message: str) -> tuple[str, str]:
    """The type and the message of an exception: those of the DataLoader worker where a rank raised it again."""
    original = _IN_WORKER.search(message)
    return (original["type"], original["message"] or "") if original else (kind, message)


def place_in_worker(message: str) -> Where | None:
    """The script's line at which a DataLoader worker raised what its rank has raised again."""
    original = _IN_WORKER.search(message)
    return innermost(original["frames"]) if original else None


def innermost(traceback: str) -> Where | None:
    """The innermost line of the script: not of torch, nor of another package."""
    return innermost_of_script(frames_of(traceback))


def with_victims(trace: Trace, raised: Mapping[int, Raised]) -> tuple[int, ...]:
    """The ranks that raised, and those that were cut off before they could: what they do alike befell them too."""
    lost = (
        rank.rank
        for rank in trace.ranks
        if rank.broke and (rank.killed_by == signal.SIGTERM or (rank.failure and rank.failure.of_a_victim))
    )
    return tuple(sorted({*raised, *lost}))


def last_lines(raised: Mapping[int, Raised]) -> tuple[Evidence, ...]:
    """What each rank raised: equal messages once."""
    return by_state(dict(sorted(raised.items())), last_line)


def last_line(raised: Raised) -> str:
    """How the traceback of an exception ends, fit to be shown."""
    kind, message = as_raised(raised.type, raised.message)
    origin = " (in a DataLoader worker)" if message != raised.message else ""
    return quote(shorten(f"{kind}: {_first_line(message)}{origin}", 200))[1:-1]


def remedy(message: str) -> str | None:
    """What helps against an exception that everybody meets; None of others."""
    return next((text for pattern, text in _REMEDIES.items() if re.search(pattern, message)), None)


def indices_without_gradient(message: str) -> tuple[int, ...]:
    """The numbers of the parameters that DDP lists in its message, among those that require a gradient."""
    match = _INDICES.search(message)
    return tuple(int(number) for number in match[1].split()) if match else ()


def keys_of(recording: Recording, indices: tuple[int, ...]) -> tuple[str, ...]:
    """The parameters with these numbers; none where it is not clear which wrapper they belong to."""
    built = [wrapper.trained for wrapper in recording.wrappers if wrapper.failed is None]
    return tuple(built[0][index] for index in indices if index < len(built[0])) if len(built) == 1 else ()


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0] if message.strip() else ""

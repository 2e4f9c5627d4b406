from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check, Findings, Kind, Passed
from ddpdoctor.text import quote, ranks_phrase
from ddpdoctor.trace import RankTrace, Recording, Trace
from ddpdoctor.trace.files import is_named

_MAKES = ("write", "mkdir", "rename", "extract")
"""What a rank does to a file so that it is there."""


class FileOfAnotherHost(Check):
    """A rank looks for a file that a rank of another host has written, and does not find it.

    What it finds:
        Ranks that end with FileNotFoundError over a path which a rank of another host saved or wrote under the same
        name: the hosts do not share the folder.

    Why it matters:
        On one host, and on a shared file system, what rank 0 saves is there for all. In a folder of the host's own
        disk, such as /tmp or a container's file system, only the ranks of rank 0's host find it; the others fail, and
        all wait for them.

    Example:
        if dist.get_rank() == 0:
            torch.save(state, "/tmp/best.pt")
        dist.barrier()
        state = torch.load("/tmp/best.pt")     # the ranks of other hosts find nothing

    Fix:
        Write to a folder that all hosts share; or have one rank of each host write (LOCAL_RANK is 0); or read on rank 0
        and broadcast:
            stat -f -c %T FOLDER               # on every host: nfs, lustre, and not ext2 or overlayfs
    """

    code = "DD408"
    title = "files are found on every host"

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.recordings()
        self.require(len({recording.host for recording in recordings.values()}) >= 2, "the job has one host")
        missing: dict[str, list[int]] = {}
        for rank in trace.ranks:
            for path in _missing(rank, recordings):
                missing.setdefault(path, []).append(rank.rank)
        for path, ranks in missing.items():
            writers = [rank for rank, recording in recordings.items() if path in _written(recording)]
            raised = recordings[ranks[0]].raised
            yield self.fail(
                f"{ranks_phrase(ranks)} cannot find {quote(path)}, which {ranks_phrase(writers)} wrote on another host",
                ranks=tuple(ranks),
                where=raised.at if raised else None,
                about=Kind.PATH.of(path),
            )
        yield Passed("no rank misses a file that another host has")


def _missing(rank: RankTrace, recordings: Mapping[int, Recording]) -> Iterator[str]:
    """The paths over which a rank failed, and that ranks of other hosts have written."""
    here = rank.recording
    if here is None or rank.failure is None or not rank.failure.type.endswith("FileNotFoundError"):
        return
    others = [recording for recording in recordings.values() if recording.host != here.host]
    paths = dict.fromkeys(path for other in others for path in _written(other))
    yield from (path for path in paths if is_named(path, rank.failure.message))


def _written(recording: Recording) -> set[str]:
    saved = {save.path for save in recording.saves if save.path}
    return saved | {file.path for file in recording.files if file.action in _MAKES}

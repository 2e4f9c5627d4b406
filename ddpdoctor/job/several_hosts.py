"""A run whose hosts each left a folder, as one Trace: brought together at its end, or copied by hand."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ddpdoctor.hang import snapshots
from ddpdoctor.job.command import RECORD
from ddpdoctor.job.job_folder import STOPPED, read_ending, read_trace
from ddpdoctor.trace import LostHost, RankTrace, Shortened, Trace

HOSTS = "hosts"
"""The folder, inside a run's own, with the job folders of the other hosts."""


def job_folders(run: Path, job: Path) -> tuple[Path, ...]:
    """The job folders of all hosts in a run folder: its own, and those that the others delivered."""
    return (job, *sorted(path for path in (run / HOSTS).glob("*") if path.is_dir()))


def without_copies(own: Sequence[Path], delivered: Iterable[Path]) -> tuple[Path, ...]:
    """These job folders, and of those that were delivered to them the ones that are no copy of one of them. What a host
    kept is whole; of what it delivered a part may be left out."""
    known = {name for folder in own for name in _records(folder)}
    return (*own, *(folder for folder in delivered if known.isdisjoint(_records(folder))))


def _records(folder: Path) -> set[str]:
    return {file.name for file in (folder / RECORD).glob("*.jsonl")}


def read_hosts(folders: Sequence[Path]) -> Trace:
    """The run in these folders, one for each host. What a host wrote after another one's job was ended is left out: its
    ranks then only tell of peers that are gone."""
    if len(folders) == 1:
        return read_trace(folders[0])
    endings = [read_ending(folder) for folder in folders]
    ended = [ending.ended_at + ending.clock for ending in endings if ending.ended_at is not None]
    first = min(ended, default=None)
    over = [None if first is None else first - ending.clock for ending in endings]
    return united([*map(read_trace, folders, over)])


def united(parts: Sequence[Trace]) -> Trace:
    """The traces of several hosts as that of their job."""
    parts, lost = _of_last_attempt(parts)
    standstills = [part.snapshot for part in parts if part.snapshot]
    return Trace(
        ranks=_ranks(parts),
        status=next((part.status for part in parts if part.status), 0),
        seconds=max(part.seconds for part in parts),
        timed_out=any(part.timed_out for part in parts),
        out_of_time=any(part.out_of_time for part in parts),
        log=tuple(line for part in parts for line in part.log),
        left_behind=tuple(process for part in parts for process in part.left_behind),
        bundled=all(part.bundled for part in parts),
        world_size=max((part.world_size for part in parts if part.world_size), default=None),
        shortened=_shortened([part.shortened for part in parts if part.shortened]),
        rehearsal=any(part.rehearsal for part in parts),
        others=tuple(recording for part in parts for recording in part.others),
        snapshot=snapshots.merge(standstills) if standstills else None,
        lost=(*lost, *(host for part in parts for host in part.lost)),
        oom_kills=sum(part.oom_kills for part in parts),
        written=next((part.written for part in parts if part.written), None),
        before=_before(parts),
    )


def _before(parts: Sequence[Trace]) -> tuple[Trace, ...]:
    """The jobs before this one, where every host ran as many."""
    counts = {len(part.before) for part in parts}
    jobs = zip(*(part.before for part in parts), strict=True) if len(counts) == 1 else ()
    return tuple(map(united, jobs))


def _of_last_attempt(parts: Sequence[Trace]) -> tuple[list[Trace], list[LostHost]]:
    """The traces without those of hosts that torchrun started the job anew without; and these hosts."""
    newest = max(filter(_given_size, parts), key=lambda part: part.restarts, default=parts[0])
    sizes = {_given_size(newest), None}
    left = [part for part in parts if newest.restarts and _given_size(part) not in sizes]
    hosts = ((next(iter(part.recorded.values())).host, tuple(part.recorded)) for part in left)
    here = [part for part in parts if not newest.restarts or _given_size(part) in sizes]
    return here, [LostHost(*host, STOPPED) for host in hosts]


def _given_size(part: Trace) -> str | None:
    """The world size that torchrun gave the ranks of a host, whether or not they came to a process group."""
    return next((recording.environ.get("WORLD_SIZE") for recording in part.recorded.values()), None)


def _ranks(parts: Iterable[Trace]) -> tuple[RankTrace, ...]:
    """Each rank once: a launch line without a record on one host stands for rank 0, which is another's."""
    ranks: dict[int, RankTrace] = {}
    for rank in (rank for part in parts for rank in part.ranks):
        if rank.rank not in ranks or (rank.recording and not ranks[rank.rank].recording):
            ranks[rank.rank] = rank
    return tuple(ranks[number] for number in sorted(ranks))


def _shortened(parts: Sequence[Shortened]) -> Shortened | None:
    if not parts:
        return None
    most = max(part.batches for part in parts)
    fewest = min(part.fewest or part.batches for part in parts)
    return Shortened(
        most,
        max(part.passes for part in parts),
        max((part.steps for part in parts if part.steps is not None), default=None),
        fewest if fewest < most else None,
        max(part.whole for part in parts),
    )

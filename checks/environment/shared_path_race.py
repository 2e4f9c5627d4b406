from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Kind, Passed
from ddpdoctor.failures import Message
from ddpdoctor.program.handlers import is_caught
from ddpdoctor.recorder.events.files import FileEvent, LogWriter, PathAsked
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.text import by_state, plural, quote, ranks_phrase, shorten
from ddpdoctor.trace import Recording, Trace, by_first_line, by_key, on_each_rank
from ddpdoctor.trace.files import ClockName, HappensBefore, is_named, is_of_training, named_by_clocks
from ddpdoctor.trace.lines import is_for_some_ranks
from ddpdoctor.trace.raised import last_line, raised_as
from ddpdoctor.unreached.files import files_written_by_all

_RACING = {"write": "wrote", "extract": "extracted"}
_MADE = ("mkdir", *_RACING)
_ONCE = {"mkdir": "make", "remove": "remove", "rename": "move"}
"""What succeeds on one rank only."""
_TOO_LATE = (r"^FileExistsError: ", r"^FileNotFoundError: ")
_FOUND_THERE = ("FileExistsError", "OSError", "IOError", "EnvironmentError", "Exception", "BaseException")
"""What an ``except`` names that catches FileExistsError."""
_LOCK, _LOG = ".lock", ".log"
"""Suffixes of files that several processes open by design: locks, and logs to which each of them adds (DD606)."""
_MOST_PATHS = 4
"""Paths of one line that the evidence lists."""

_RESULT = (
    "Each rank opens the file and empties it, so it has what the last rank wrote, or parts "
    "of several. A rank that reads it at that moment finds an empty or incomplete file."
)
_ADDED = (
    "An entry that each rank adds is there once for each of them, and lines of two ranks may run together."
)
_ON_RANK_0 = """if dist.get_rank() == 0:
    save(results)        # what writes the file
Results that differ between ranks need a file for each: f"results_rank{dist.get_rank()}.json\""""


class SharedPathRace(Check):
    """Several ranks write the same path without synchronization.

    What it finds:
        A file that several ranks of one host create, truncate, download or extract without a lock and without a
        collective in between; a folder that all ranks create, or a file that all remove or move, where a rank that
        was second failed; a folder or a file that each rank makes where it finds none, where it happened to go well;
        and a folder whose name ranks build from local time. Checkpoints (DD402) and log files to which every rank
        adds (DD606) have their own checks; a log that every rank empties, by open(path, "w") or a FileHandler, is
        found here.

    Why it matters:
        A rank may read a file while another rank has truncated it. Whether that happens depends on timing: the first
        run on a new machine may fail with "corrupted file" or "unexpected end of data". os.makedirs without
        exist_ok=True may fail on all ranks but one.

    Example:
        Every rank prepares the data:
            dataset = MNIST("data", download=True)

    Fix:
        Let one rank of each host do it while the others wait:
            if local_rank == 0:
                prepare("data")        # what writes the path
            dist.barrier()
        Folders that every rank may create need no order: os.makedirs(path, exist_ok=True)
    """

    code = "DD020"
    title = "no two ranks write the same path at a time"
    explained_by = ("DD402",)
    messages = (
        Message(
            r"(?:unable to lock file, errno = 11|unable to truncate a file which is already open)",
            headline="{rank} could not open an HDF5 file that another process has open for writing",
            why="HDF5 lets one process write a file, and locks it. Ranks that open the same path for writing are "
            "refused, all but the first.",
            fix="if dist.get_rank() == 0:\n    file = h5py.File(path, 'w')\n"
            "the other ranks: another path, or mode 'r' once it is written",
            likely=True,
        ),
        Message(
            r"OperationalError: database is locked",
            headline="{rank} found an SQLite database locked by another process",
            why="SQLite lets one process write at a time. Ranks that write to the same database wait 5 s for each "
            "other and then fail.",
            fix="write on rank 0 only, or to a database for each rank: f'results_rank{dist.get_rank()}.db'",
            likely=True,
        ),
    )
    unreached = (files_written_by_all, "every rank would call {what} for {path}")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        self.require(len(recordings) >= 2, "needs at least two ranks")
        late, order, intended = raised_as(trace, *_TOO_LATE), HappensBefore(recordings), _intended(recordings)
        asked = _asked_then_made(recordings, order, intended)
        asking = {made.path: ranks for made, ranks in asked}
        failed = {
            events[rank].path: self._too_late(events, late, raised, asking.get(events[rank].path, ()))
            for rank, raised in reversed(late.items())
            if (events := _same_on_peers(recordings, order, rank, raised, late))
        }
        racing = {
            path: events
            for path, events in _writes_by_path(recordings, intended).items()
            if len(events) > 1 and not _take_turns(order, events) and not _locked(recordings, events)
        }
        races = by_first_line(racing, lambda event: (event.at, event.action))
        return [
            *failed.values(),
            *(self._race(paths, asking, recordings) for paths in races),
            *(self._asked(*pair) for pair in asked if pair[0].path not in {*failed, *racing}),
            *map(self._named_by_clocks, named_by_clocks(recordings)[:1]),  # one clock names all of them
        ] or Passed("no two ranks wrote the same file of the script at a time")

    def _race(
        self,
        paths: Mapping[str, Mapping[int, FileEvent]],
        asking: Mapping[str, tuple[int, ...]],
        recordings: Mapping[int, Recording],
    ) -> Finding:
        """The files that one line writes; a rank that found one there would have written it, had it come earlier."""
        (first, events), *others = paths.items()
        event = next(iter(events.values()))
        ranks = sorted({rank for path, of in paths.items() for rank in (*of, *asking.get(path, ()))})
        more = f" and {plural(len(others), 'more path')}" if others else ""
        adds = event.action == "write" and not any(it.emptied for of in paths.values() for it in of.values())
        results = all(is_of_training(recordings, path) for path in paths)
        if first in asking:
            what = f"write {quote(first)}{more} where they find none,"
        else:
            what = f"{_RACING[event.action]} {quote(first)}{more}"
        return self.warn(
            f"{ranks_phrase(ranks)} {what} without synchronizing",
            ranks=tuple(ranks),
            where=event.at,
            evidence=[
                Evidence(f"{_RACING[event.action]} {quote(path)}", tuple(writers))
                for path, writers in list(paths.items())[:_MOST_PATHS]
            ],
            confidence=Confidence.LIKELY,
            about=Kind.PATH.of(*paths),
            **({"why": _ADDED if adds else _RESULT, "fix": _ON_RANK_0} if results else {}),
        )

    def _asked(self, made: FileEvent, ranks: tuple[int, ...]) -> Finding:
        return self.warn(
            f"{ranks_phrase(ranks)} {'make' if made.action == 'mkdir' else 'write'} {quote(made.path)} where they find "
            "none, without synchronizing",
            where=made.at,
            evidence=(Evidence("in this run no two ranks met there at the same moment", ranks),),
            confidence=Confidence.LIKELY,
            about=Kind.PATH.of(made.path),
            **({"fix": "os.makedirs(path, exist_ok=True)"} if made.action == "mkdir" else {}),
        )

    def _named_by_clocks(self, named: ClockName) -> Finding:
        return self.info(
            f"{ranks_phrase(named.paths)} build the name of the run's folder from local time",
            why="The clocks of ranks differ, so the files of one run lie in several folders, or in one, by chance.",
            fix='name = [time.strftime("%Y%m%d-%H%M%S")]\ndist.broadcast_object_list(name, src=0)    # then name[0]',
            where=named.at,
            evidence=by_state(named.paths, lambda path: quote(shorten(PurePath(path).name))),
        )

    def _too_late(
        self, events: Mapping[int, FileEvent], failed: Collection[int], raised: Raised, asking: Iterable[int]
    ) -> Finding:
        """What only one rank can do; a rank that asked, and found it done, would have done it, had it come earlier."""
        late = [rank for rank in events if rank in failed]
        event, ranks = events[late[0]], sorted({*events, *asking})
        return self.fail(
            f"{ranks_phrase(ranks)} {_ONCE[event.action]} {quote(event.path)} without "
            f"synchronizing, and {ranks_phrase(late)} failed: already done",
            ranks=tuple(ranks),
            where=raised.at or event.at,
            evidence=(Evidence(last_line(raised), tuple(late)),),
            about=Kind.PATH.of(event.path),
        )


def _same_on_peers(
    recordings: Mapping[int, Recording],
    order: HappensBefore,
    rank: int,
    raised: Raised,
    late: Mapping[int, Raised],
) -> dict[int, FileEvent]:
    """The event of each rank that did what this one was too late for; empty where no other rank succeeded."""
    host = recordings[rank].host
    for event in reversed(recordings[rank].files):
        if event.action in _ONCE and is_named(event.path, raised.message):
            same = {
                peer: other
                for peer, recording in sorted(recordings.items())
                for other in reversed(recording.files)
                if recording.host == host and (other.action, other.path) == (event.action, event.path)
            }
            return {} if set(same) <= set(late) or _take_turns(order, same) else same
    return {}


def _asked_then_made(
    recordings: Mapping[int, Recording], order: HappensBefore, intended: "_Intended"
) -> list[tuple[FileEvent, tuple[int, ...]]]:
    """What one rank made after it had asked whether it exists, as others asked at the same line."""
    results = []
    for rank, recording in recordings.items():
        for made in recording.files:
            if made.action not in _MADE or _is_intended(made, intended):
                continue
            asked = _asked_by_others(recordings, rank, made)
            if not asked or is_for_some_ranks(made.at, recordings) or _may_come_too_late(made):
                continue
            events: dict[int, FileEvent | PathAsked] = {rank: made, **asked}
            if not _take_turns(order, events) and not _locked(recordings, events):
                results.append((made, tuple(sorted(events))))
    return results


def _may_come_too_late(made: FileEvent) -> bool:
    """Whether the script catches that a folder is there by the time that it makes it."""
    return made.action == "mkdir" and made.at is not None and is_caught(made.at, _FOUND_THERE)


def _asked_by_others(recordings: Mapping[int, Recording], rank: int, made: FileEvent) -> dict[int, PathAsked]:
    """The question of each other rank that found this there, or made it too, where the rank itself had found none.

    A rank that found none and made none does so on purpose: it leaves that to the other.
    """
    questions = (asked for asked in recordings[rank].asked if asked.path == made.path)
    question = next((asked for asked in questions if not asked.there and asked.time < made.time), None)
    if question is None:
        return {}
    return {
        peer: asked
        for peer, other in recordings.items()
        for asked in reversed(other.asked)  # the first is what counts
        if peer != rank and other.host == recordings[rank].host
        if (asked.path, asked.at) == (made.path, question.at)
        if asked.there or any((event.action, event.path) == (made.action, made.path) for event in other.files)
    }


def _writes_by_path(group: Mapping[int, Recording], intended: "_Intended") -> dict[str, dict[int, FileEvent]]:
    """Each rank's first write of a path that is not left to another check, by host and path."""
    first: defaultdict[tuple[str, str], dict[int, FileEvent]] = defaultdict(dict)
    for rank, recording in group.items():
        for event in recording.files:
            racing = event.action in _RACING and event.at is not None
            if racing and not _is_intended(event, intended):
                first[recording.host, event.path].setdefault(rank, event)
    return {path: events for (_, path), events in first.items()}


@dataclass(frozen=True)
class _Intended:
    """What is left to other checks, or written by several ranks on purpose."""

    files: frozenset[str]
    logs: frozenset[str]
    """Those to which several ranks add (DD606): folders, or files."""


def _intended(recordings: Mapping[int, Recording]) -> _Intended:
    files = [event for recording in recordings.values() for event in recording.files]
    saves = (save.path for recording in recordings.values() for save in recording.saves)
    writers = by_key(on_each_rank(recordings, lambda it: it.events(LogWriter)), lambda writer: writer.target)
    logs = (next(iter(of_ranks.values())).target for of_ranks in writers if len(of_ranks) > 1)
    locks = (event.path for event in files if event.action == "lock")
    return _Intended(frozenset({*saves, *locks}), frozenset(logs))


def _is_intended(event: FileEvent, intended: _Intended) -> bool:
    """Whether it is left to another check, or several processes open such a file by design."""
    path = event.path
    by_design = path.endswith(_LOCK) or (path.endswith(_LOG) and not event.emptied)
    return by_design or path in intended.files or _is_below(path, intended.logs)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders if folder)


def _locked(recordings: Mapping[int, Recording], events: Mapping[int, FileEvent | PathAsked]) -> bool:
    """Whether each rank held a lock when it wrote: which file it protects only the script knows."""
    return bool(set.intersection(*(_held(recordings[rank], write) for rank, write in events.items())))


def _held(recording: Recording, write: FileEvent | PathAsked) -> set[str]:
    """The locks that a rank took before it wrote, and the folders that it made before and removed behind it, since it
    last joined a collective: no two ranks do while one of them holds their lock."""
    since = max((call.time for call in recording.collectives if call.time < write.time), default=0.0)
    taken = [event for event in recording.files if since <= event.time < write.time]
    removed = {it.path for it in recording.files if it.action == "remove" and it.time > write.time}
    folders = {event.path for event in taken if event.action == "mkdir"} & removed
    return folders | {event.action for event in taken if event.action == "lock"}


def _take_turns(order: HappensBefore, events: Mapping[int, FileEvent | PathAsked]) -> bool:
    """Whether what each rank but the first did had to wait for the first, whenever the ranks came."""
    first = min(events, key=lambda rank: events[rank].time)
    begun = events[first].time
    return all(order.is_forced(first, begun, it, events[it].time) for it in events if it != first)

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Kind, NotMeasured, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.recorder.events.files import FileEvent, Load, Save
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.text import by_state, duration, quote, ranks_do, ranks_phrase, shorten, size
from ddpdoctor.trace import Recording, Trace, grouped, on_each_rank
from ddpdoctor.trace.files import Exchange, HappensBefore, exchanged, is_named, read_last
from ddpdoctor.trace.instances import files
from ddpdoctor.trace.raised import last_line, raised_as
from ddpdoctor.unreached.files import read_at_once

_UNREADABLE = re.compile(
    r"(?s)(?:FileNotFoundError|EOFError|PytorchStreamReader|UnpicklingError).*\.(?:pt|pth|ckpt|safetensors|tar)\b"
)
_UNKNOWN = "an unknown line"
_JOIN = "thread.join()     # on the rank that writes\ndist.barrier()    # then the others may read"
_TooEarly: TypeAlias = tuple[int, FileEvent, dict[int, Raised]]
"""Who writes a file, its write, and who failed for it."""
_PIECE = re.compile(r"(?i)(?:rank|shard|part|worker)[-_.=]?\d+[^/\s]*\.[a-z]|\d{3,}\.tar\b")
"""One rank's own file, or one of many of a data set: no other rank writes it meanwhile."""


class CheckpointRace(Check):
    """A rank reads a checkpoint that another rank is still writing.

    What it finds:
        A checkpoint read on one rank with nothing in between that makes it wait for the write on another: no barrier,
        no other collective, no training step, no lock; whether it went well this time or not. Also a rank that failed
        since a file of another kind, which another rank writes, was missing or incomplete. In the live group, a
        filesystem on which a file that is written and closed before a barrier is not complete for the ranks that read
        after it.

    Why it matters:
        torch.save writes for seconds. A rank that reads meanwhile finds no file, or part of one, and ends with
        FileNotFoundError or "failed finding central directory"; or it finds yesterday's file and goes on with
        other weights than the rest. It works in tests, where files are small.

    Example:
        if rank == 0:
            torch.save(model.state_dict(), "last.pt")
        state = torch.load("last.pt", map_location="cpu")     # ranks 1-3 are here at once

    Fix:
        Let every rank wait until the file is complete:
            if rank == 0:
                torch.save(model.state_dict(), "last.pt")
            dist.barrier()
            state = torch.load("last.pt", map_location="cpu")
        Where each rank looks for itself whether the file is there, let one rank decide before it writes:
            resume = [os.path.exists("last.pt")]
            dist.broadcast_object_list(resume)    # rank 0's answer
        Against a reader outside the job, write beside it and rename:
            torch.save(state, "last.pt.part"); os.replace("last.pt.part", "last.pt")
    """

    code = "DD401"
    title = "a checkpoint is complete for every rank after a barrier"
    measurements = ("checkpoint",)
    unreached = (read_at_once, "{path} would be read while {ranks} writes it")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("checkpoint")
        self.require(len(values) != 1, "needs at least two ranks")
        errors = [value["error"] for value in values.values() if value["error"]]
        if errors:
            raise NotMeasured(f"the checkpoint folder cannot be written: {errors[0]}")
        unshared = _unshared(values)
        shared = {rank: value for rank, value in values.items() if rank not in unshared}
        wrong = {rank: value for rank, value in shared.items() if value["after"] != "whole"}
        if wrong:
            return self._incomplete(wrong, ranks.launch.checkpoint_dir)
        return Passed(_passed(values, unshared))

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings_of_several()
        missed = [
            self._too_early("need {file} without waiting for rank {writer} to write it", *miss)
            for miss in _missed(trace, recordings)
        ]
        missed += [
            self._too_early("read {file} while rank {writer} may still write it", *half)
            for half in _half_read(trace, recordings)
        ]
        pairs = list(exchanged(recordings))
        self.require(pairs or missed, "no rank reads a checkpoint that another one writes")
        order = HappensBefore(recordings)
        races = [pair for pair in pairs if _is_race(pair, order, recordings)]
        lines = grouped(races, lambda race: (race[1].at, race[3].at, race[0]))
        return [*missed, *map(self._race, lines)] or Passed(
            f"{ranks_phrase({reader for _, _, reader, _ in pairs})} read checkpoints only after they were complete"
        )

    def examine_log(self, log: Log) -> Judgement:
        failed = [
            raised
            for raised in log.fatal
            if raised.rank is not None and _UNREADABLE.search(raised.text) and not _PIECE.search(raised.text)
        ]
        ranks = {raised.rank for raised in failed if raised.rank is not None}
        others = (log.world_size or len(log.stopped) + len(log.ended)) - len(ranks)
        if not failed or 0 in ranks or others < 1:
            return NOT_IN_OUTPUT
        return self.fail(
            f"{ranks_phrase(ranks)} found no checkpoint or an incomplete one, and rank 0 found it",
            confidence=Confidence.LIKELY,
            **log_fields(*failed, ranks=ranks),
        )

    def _race(self, races: Sequence[Exchange]) -> Finding:
        """Of what one line writes on one rank, and one line reads on others."""
        writer, save, _, _ = races[0]
        # A rank that failed says most.
        _, _, reader, load = next((race for race in races if race[3].error), races[0])
        readers = {rank for _, _, rank, _ in races}
        paths = [save.path for _, save, _, _ in races]
        return self.fail(
            f"{ranks_do(readers, 'read')} {files(paths)} without waiting for rank {writer} to write it",
            ranks=tuple(sorted(readers)),
            where=load.at,
            evidence=(
                Evidence(f"writes {size(save.size or 0)} at {save.at or _UNKNOWN}", (writer,), save.at),
                Evidence(f"reads at {load.at or _UNKNOWN}, {_when(save, load)}", (reader,), load.at),
            ),
            about=Kind.PATH.of(*dict.fromkeys(paths)),
        )

    def _too_early(self, what: str, writer: int, event: FileEvent, readers: Mapping[int, Raised]) -> Finding:
        reader, raised = next(iter(readers.items()))
        thread = ", in a background thread" if event.background else ""
        verb, _, rest = what.partition(" ")
        return self.fail(
            f"{ranks_do(readers, verb)} {rest.format(file=files([event.path]), writer=writer)}",
            **({"fix": _JOIN} if event.background else {}),
            ranks=tuple(sorted(readers)),
            where=raised.at,
            evidence=(
                Evidence(f"writes it at {event.at or _UNKNOWN}{thread}", (writer,), event.at),
                Evidence(last_line(raised), (reader,), raised.at),
            ),
            about=Kind.PATH.of(event.path),
        )

    def _incomplete(self, wrong: Mapping[int, Mapping[str, Any]], folder: str) -> Finding:
        first = next(iter(wrong.values()))
        content = "no file" if first["after"] == "nothing" else f"{size(first['bytes'])}"
        return self.fail(
            f"{ranks_phrase(wrong)} found {content} of a checkpoint of {size(first['expected_bytes'])} in "
            f"{quote(folder)} after the barrier",
            why="Rank 0 had written, synced and closed the file before the barrier. This filesystem shows other ranks "
            "an older state (attribute caching, asynchronous export), so resuming reads broken checkpoints.",
            fix="keep checkpoints on a filesystem with close-to-open consistency (NFS: mount with noac or "
            "actimeo=0), or load on rank 0 and broadcast the weights",
            evidence=by_state(
                wrong, lambda value: f"{value['after']}, {value['bytes']} of {value['expected_bytes']} bytes"
            ),
            about=Kind.PATH.of(folder),
        )


def _missed(trace: Trace, recordings: Mapping[int, Recording]) -> Iterator[_TooEarly]:
    """The files that were not there yet.

    ``torch.load`` and what the rank itself makes and removes are told elsewhere.
    """
    order = HappensBefore(recordings)
    late = {
        rank: raised
        for rank, raised in raised_as(trace, r"^FileNotFoundError: ").items()
        if not any(is_named(event.path, raised.message) for event in _events(recordings[rank]))
    }
    paths: set[str] = set()
    for (reader, raised), (writer, event) in product(late.items(), on_each_rank(recordings, _written)):
        same_host = recordings[writer].host == recordings[reader].host and writer != reader
        if not same_host or event.path in paths or not is_named(event.path, raised.message):
            continue
        if order.may_overlap(writer, (event.time, event.time), reader, (raised.time, raised.time)):
            paths.add(event.path)
            readers = {rank: error for rank, error in late.items() if is_named(event.path, error.message)}
            yield writer, event, readers


def _half_read(trace: Trace, recordings: Mapping[int, Recording]) -> Iterator[_TooEarly]:
    """The files that ranks failed to understand while another may still have been writing them."""
    order = HappensBefore(recordings)
    victims = {rank.rank for rank in trace.ranks if rank.is_victim}
    errors = raised_as(trace, r"^(?!FileNotFoundError: )")  # of no file at all, another finding tells
    failed = {rank: raised for rank, raised in errors.items() if rank not in victims}
    pairs: dict[tuple[int, str], tuple[FileEvent, dict[int, Raised]]] = {}
    for (reader, raised), (writer, event) in product(failed.items(), on_each_rank(recordings, _written)):
        read = read_last(recordings[reader])
        mine = {event.path for event in _events(recordings[reader])}
        if read is None or writer == reader or event.path != read.path or event.path in mine:
            continue
        same_host = recordings[writer].host == recordings[reader].host
        until = math.inf if event.background else event.time
        if same_host and order.may_overlap(writer, (event.time, until), reader, (read.time, raised.time)):
            pairs.setdefault((writer, event.path), (event, {}))[1][reader] = raised
    yield from ((writer, event, readers) for (writer, _), (event, readers) in pairs.items())


def _written(recording: Recording) -> list[FileEvent]:
    return [event for event in recording.files if event.action == "write"]


def _events(recording: Recording) -> tuple[Save | Load | FileEvent, ...]:
    return (*recording.saves, *recording.loads, *recording.files)


def _is_race(pair: Exchange, order: HappensBefore, recordings: Mapping[int, Recording]) -> bool:
    """Whether nothing makes one wait for the other; a lock that both took may, what it guards only the script knows."""
    writer, save, reader, load = pair
    locks = _locks(recordings[writer], save.begin) & _locks(recordings[reader], load.begin)
    return order.may_overlap(writer, save.span, reader, load.span) and not locks


def _locks(recording: Recording, until: float) -> set[str]:
    return {event.path for event in recording.files if event.action == "lock" and event.time < until}


def _when(save: Save, load: Load) -> str:
    """How far apart they were this time."""
    if load.error:
        return quote(shorten(load.error))
    begin, end = save.span
    if load.begin >= end:
        return f"{duration(load.begin - end)} after it was complete, this time"
    when = "after" if load.begin >= begin else "before"
    return f"{duration(abs(load.begin - begin))} {when} the write began"


def _unshared(values: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """Ranks of other hosts that see no file at all: the folder is local to each host, which is no race."""
    elsewhere = {rank: value for rank, value in values.items() if value["host"] != values[0]["host"]}
    return [rank for rank, value in elsewhere.items() if value["after"] == "nothing"]


def _passed(values: Mapping[int, Mapping[str, Any]], unshared: list[int]) -> str:
    text = "after the barrier every rank found rank 0's checkpoint complete"
    if unshared:
        elsewhere = "on another host does" if len(unshared) == 1 else "on other hosts do"
        text = "after the barrier the ranks of rank 0's host found its checkpoint complete; "
        text += f"{ranks_phrase(unshared)} {elsewhere} not share the folder"
    during = {state for rank, value in values.items() if rank != 0 for state in value["during"]}
    early = sorted(during - {"whole"})
    words = {"nothing": "no file", "part": "part of it"}
    return text + (f"; before it they found {' or '.join(words[state] for state in early)}" if early else "")

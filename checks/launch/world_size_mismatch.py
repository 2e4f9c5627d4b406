from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.redact import show_value
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_JOINING = ("joining", "refused", "init")

_OTHER_SIZE = (
    r"mismatch in (?:rank count|info) from procs,? (?:nranks )?(?P<given>\d+) (?::|vs) (?P<other>\d+)"
)
_RANK_TWICE = r"rank (?P<rank>\d+) of \d+ ranks has already checked in"
_BEYOND = (
    r"[Rr]ank (?P<rank>\d+) .{0,40}(?:outside of|not less than|exceeds) (?:the )?world[ _]size (?P<size>\d+)"
)
_RANK_OUTSIDE = r"enforce fail .{0,200}rank < size\. (?P<rank>\d+) vs (?P<size>\d+)"


class WorldSizeMismatch(Check):
    """The script contradicts its launcher about ranks or where they meet.

    What it finds:
        A rank or world size, given to init_process_group or put into the environment, that differs from what
        torchrun told this process; a launcher inside a launcher, as mp.spawn under torchrun; and MASTER_ADDR or
        MASTER_PORT overwritten by a script that torchrun started, whose ranks then do not meet. In a job's output,
        what NCCL and gloo say of ranks that gave different sizes, or the same rank.

    Why it matters:
        Each process waits for a group of another size, or at another address, than the one that exists. Nothing
        is printed until the rendezvous times out, after 10 or 30 minutes; or two groups form that know nothing of
        each other.

    Example:
        A script that starts its own processes is itself started twice by torchrun:
            torchrun --nproc-per-node 2 train.py     # which calls mp.spawn(main, nprocs=2)

    Fix:
        Let one of them launch. Under torchrun take everything from the environment:
            dist.init_process_group(backend="nccl")      # rank, world size and address come from torchrun
    """

    code = "DD005"
    title = "the script and its launcher agree about ranks and address"
    log_words = ("mismatch in rank count", "mismatch in info", "has already checked in", "rank < size")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        unseen = [rank.rank for rank in trace.ranks if rank.recording is None]
        contradicted = {
            rank: names for rank, recording in recordings.items() if (names := _contradicted(recording))
        }
        if contradicted:
            # Processes that took one rank are one record: the others are those that nobody was seen as.
            return self._contradiction(contradicted, recordings, tuple(sorted({*contradicted, *unseen})))
        moved = {
            rank: names
            for rank, recording in recordings.items()
            if (names := _moved(recording)) and not _joined(recording)
        }
        if moved:
            return self._moved(moved, recordings)
        if not any(_is_launched(recording) for recording in recordings.values()):
            return Skipped("the ranks were started by no launcher that tells them their place")
        return Passed("rank, world size and address are those of the launcher")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_OTHER_SIZE, _RANK_TWICE, _RANK_OUTSIDE, _BEYOND)
        groups = reason.match.groupdict()
        if groups.get("other"):
            headline = f"ranks gave different world sizes: {groups['given']} and {groups['other']}"
        elif groups.get("size"):
            headline = f"a process took rank {groups['rank']} of {groups['size']} ranks"
        else:
            headline = f"two processes took rank {groups['rank']}"
        return self.fail(
            headline,
            why="Every process has to give the same world size and a rank of its own. One was started with "
            "variables of another launch, or the script counts ranks by itself, as with a launcher inside a "
            "launcher.",
            fix='dist.init_process_group("nccl")     # rank and world size come from the launcher\n'
            "env | grep -E 'RANK|WORLD_SIZE|SLURM_NTASKS'     # in every rank, before that line",
            **log_fields(reason),
        )

    def _contradiction(
        self,
        contradicted: Mapping[int, tuple[str, ...]],
        recordings: Mapping[int, Recording],
        ranks: tuple[int, ...],
    ) -> Finding:
        rank, names = next(iter(contradicted.items()))
        given, launched = _given(recordings[rank], names[0]), recordings[rank].environ[names[0].upper()]
        several = names[0] == "rank" and len(contradicted) > 1
        return self.fail(
            f"{ranks_phrase(ranks)} were taken by processes that the launcher gave others: rank {given} by "
            f"RANK={launched}"
            if several
            else f"{ranks_phrase(ranks)} joined with {names[0]} {given} where the launcher said "
            f"{names[0].upper()}={launched}",
            why="The launcher started one process for each rank and gave it its place. The script counts "
            "otherwise, mostly because it starts processes itself or has a number written into it, so "
            "processes wait for others that do not exist, or form groups that know nothing of each other.",
            fix='dist.init_process_group(backend="nccl")     # under torchrun, without rank and world_size\n'
            "or, where the script calls mp.spawn, no torchrun around it: ddpdoctor check -- python train.py",
            ranks=ranks,
            where=_joining(recordings[rank]).at,
            evidence=tuple(
                Evidence(_said(recordings[member], names), (member,))
                for member, names in contradicted.items()
            ),
        )

    def _moved(self, moved: Mapping[int, tuple[str, ...]], recordings: Mapping[int, Recording]) -> Finding:
        rank, names = next(iter(moved.items()))
        return self.fail(
            f"{ranks_phrase(moved)} overwrote {' and '.join(names)}, and did not get into the process group",
            why="torchrun's agent serves the rendezvous at the address that it put into the environment. At "
            "another one nobody listens, so init_process_group waits until its timeout.",
            fix="leave it as it is under torchrun, or set a default only:\n"
            'os.environ.setdefault("MASTER_PORT", "29500")',
            ranks=tuple(moved),
            where=_joining(recordings[rank]).at,
            evidence=tuple(
                Evidence(_change(recordings[one], name), (one,))
                for one, names in moved.items()
                for name in names
            ),
        )


def _joining(recording: Recording) -> GroupEvent:
    """What it did to join the default group, first."""
    return next(event for event in recording.groups if event.action in _JOINING)


def _is_launched(recording: Recording) -> bool:
    """Whether torchrun started it. Other launchers set RANK and WORLD_SIZE to what they like: those of the node."""
    return "TORCHELASTIC_RUN_ID" in recording.environ and any(
        event.action in _JOINING for event in recording.groups
    )


def _given(recording: Recording, name: str) -> int | None:
    """The rank or world size that it joined with: as an argument, or through the environment."""
    joining = _joining(recording)
    text = str(joining.arguments.get(name, -1))
    text = joining.environ.get(name.upper(), "") if text == "-1" else text
    return int(text) if text.isdigit() else None


def _contradicted(recording: Recording) -> tuple[str, ...]:
    """What it joined with that differs from what the launcher had told it."""
    if not _is_launched(recording):
        return ()
    launched = {name: recording.environ.get(name.upper(), "") for name in ("world_size", "rank")}
    return tuple(
        name
        for name, text in launched.items()
        if text.isdigit() and _given(recording, name) not in (None, int(text))
    )


def _moved(recording: Recording) -> tuple[str, ...]:
    """What the script changed of the address that torchrun's agent serves."""
    if not _is_launched(recording):
        return ()
    joining = _joining(recording)
    if not str(joining.arguments.get("init_method", "env://")).startswith("env://"):
        return ()
    return tuple(
        name
        for name in _ADDRESS
        if name in recording.environ
        and _plain(joining.environ.get(name, "")) != _plain(recording.environ[name])
    )


def _plain(address: str) -> str:
    return "localhost" if address in _LOOPBACK else address


def _joined(recording: Recording) -> bool:
    return any(event.action == "init" for event in recording.groups)


def _said(recording: Recording, names: tuple[str, ...]) -> str:
    return ", ".join(
        f"{name} {_given(recording, name)} where {name.upper()}={recording.environ[name.upper()]}"
        for name in names
    )


def _change(recording: Recording, name: str) -> str:
    now = show_value(name, _joining(recording).environ.get(name, ""))
    return f"{name}: {show_value(name, recording.environ[name])} from torchrun, {now} when it joined"

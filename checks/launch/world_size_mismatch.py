from collections.abc import Mapping

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Where
from ddpdoctor.failures import Message
from ddpdoctor.recorder.patches.calls import VariableSet
from ddpdoctor.text import ranks_phrase, show_value
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.joint_training import joined_with

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OUTSIDE = "a process took rank {number} of {size} ranks"


class WorldSizeMismatch(Check):
    """The script uses another rank, world size or master address than its launcher.

    What it finds:
        A rank or world size, given to init_process_group or set in the environment, that differs from the one that
        torchrun gave to this process; a launcher inside a launcher, such as mp.spawn under torchrun; and MASTER_ADDR
        or MASTER_PORT overwritten by a script that torchrun started, so that its ranks do not join. In job output,
        errors of NCCL and gloo about ranks with different world sizes, or the same rank.

    Why it matters:
        Every process has to use the same world size and address, and a different rank. Otherwise processes wait for
        ranks that do not exist, without a message until the rendezvous times out after 10 or 30 minutes, or form
        separate groups.

    Example:
        torchrun starts a script that starts processes itself:
            torchrun --nproc-per-node 2 train.py     # which calls mp.spawn(main, nprocs=2)

    Fix:
        Under torchrun, let init_process_group read the environment:
            dist.init_process_group(backend="nccl")      # without rank and world_size
        Start a script that calls mp.spawn without torchrun:
            ddpdoctor check -- python train.py
    """

    code = "DD005"
    title = "the script and its launcher use the same ranks and address"
    messages = (
        Message(
            r"mismatch in (?:rank count|info) from procs,? (?:nranks )?(?P<given>\d+) (?::|vs) (?P<other>\d+)",
            headline="ranks gave different world sizes: {given} and {other}",
        ),
        Message(
            r"rank (?P<number>\d+) of \d+ ranks has already checked in",
            headline="two processes took rank {number}",
        ),
        Message(
            r"[Rr]ank (?P<number>\d+) .{0,40}(?:outside of|not less than|exceeds) (?:the )?world[ _]size (?P<size>\d+)",
            headline=_OUTSIDE,
        ),
        Message(r"enforce fail .{0,200}rank < size\. (?P<number>\d+) vs (?P<size>\d+)", headline=_OUTSIDE),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        contradicted = {rank: names for rank, it in recordings.items() if (names := _contradicted(it))}
        if contradicted:
            # Processes that took the same rank share one record, and other ranks then have none.
            unrecorded = [rank.rank for rank in trace.ranks if rank.recording is None]
            ranks = tuple(sorted({*contradicted, *unrecorded}))
            rank, names = next(iter(contradicted.items()))
            joining, launched = recordings[rank].joinings[0], recordings[rank].environ[names[0].upper()]
            used = joined_with(joining, names[0])
            taken = ranks_phrase(ranks)
            headline = f"{taken} joined with {names[0]} {used} where the launcher set "
            headline += f"{names[0].upper()}={launched}"
            if names[0] == "rank" and len(contradicted) > 1:
                headline = f"{taken} were taken by processes to which the launcher gave others: "
                headline += f"rank {used} by RANK={launched}"
            return self.fail(
                headline,
                ranks=ranks,
                where=joining.at,
                evidence=[
                    Evidence(_described(recordings[member], names), (member,))
                    for member, names in contradicted.items()
                ],
            )
        moved = {
            rank: names
            for rank, recording in recordings.items()
            if (names := _moved(recording)) and not recording.group_events("init")
        }
        if moved:
            return self._moved(moved, recordings)
        self.require(any(_is_launched(it) for it in recordings.values()), "torchrun did not start the ranks")
        return Passed("rank, world size and address are those of the launcher")

    def _moved(self, moved: Mapping[int, tuple[str, ...]], recordings: Mapping[int, Recording]) -> Finding:
        rank, names = next(iter(moved.items()))
        return self.fail(
            f"{ranks_phrase(moved)} overwrote {' and '.join(names)}, and did not join the process group",
            why="torchrun's agent serves the rendezvous at the address that it set in the environment. Nothing "
            "listens at the new one, so init_process_group waits until its timeout.",
            fix="do not set it under torchrun, or set a default only:\n"
            'os.environ.setdefault("MASTER_PORT", "29500")',
            where=_set_at(recordings[rank], names[0]) or recordings[rank].joinings[0].at,
            evidence=[
                Evidence(_change(recordings[member], name), (member,))
                for member, names in moved.items()
                for name in names
            ],
        )


def _is_launched(recording: Recording) -> bool:
    """Whether torchrun started it. Other launchers may set RANK and WORLD_SIZE to those of the node."""
    return "TORCHELASTIC_RUN_ID" in recording.environ and bool(recording.joinings)


def _contradicted(recording: Recording) -> tuple[str, ...]:
    """What it joined with that differs from the launcher's variables."""
    if not _is_launched(recording):
        return ()
    launched = {name: recording.environ.get(name.upper(), "") for name in ("world_size", "rank")}
    return tuple(
        name
        for name, text in launched.items()
        if text.isdigit() and joined_with(recording.joinings[0], name) not in (None, int(text))
    )


def _moved(recording: Recording) -> tuple[str, ...]:
    """The variables of the rendezvous address that the script changed."""
    if not _is_launched(recording):
        return ()
    joining = recording.joinings[0]
    if not str(joining.arguments.get("init_method", "env://")).startswith("env://"):
        return ()
    return tuple(
        name
        for name in _ADDRESS
        if name in recording.environ
        and _plain(joining.environ.get(name, "")) != _plain(recording.environ[name])
    )


def _set_at(recording: Recording, name: str) -> Where | None:
    """Where the script gave a variable the value that it joined with."""
    value = recording.joinings[0].environ.get(name)
    settings = [event for event in recording.events(VariableSet) if event.name == name]
    return settings[-1].at if settings and settings[-1].value == value else None


def _plain(address: str) -> str:
    return "localhost" if address in _LOOPBACK else address


def _described(recording: Recording, names: tuple[str, ...]) -> str:
    joining = recording.joinings[0]
    return ", ".join(
        f"{name} {joined_with(joining, name)} where {name.upper()}={recording.environ[name.upper()]}"
        for name in names
    )


def _change(recording: Recording, name: str) -> str:
    now = show_value(name, recording.joinings[0].environ.get(name, ""))
    return f"{name}: {show_value(name, recording.environ[name])} from torchrun, {now} when it joined"

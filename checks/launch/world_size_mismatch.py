from collections.abc import Iterator

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Where
from ddpdoctor.redact import show_value
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.process import GroupEvent
from ddpdoctor.trace.recording import Recording

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_JOINING = ("joining", "refused", "init")


class WorldSizeMismatch(Check):
    """The script contradicts its launcher about ranks or where they meet.

    What it finds:
        A rank or world size given to init_process_group that differs from what the launcher told this process; a
        launcher inside a launcher, as mp.spawn under torchrun; and MASTER_ADDR or MASTER_PORT overwritten by a
        script that torchrun started, whose ranks then do not meet.

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
    name = "world-size-mismatch"
    family = Family.LAUNCH
    title = "the script and its launcher agree about ranks and address"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        for rank, event in _joinings(recordings):
            if contradicted := _contradicted(event):
                return [self._contradiction(rank, event, contradicted)]
        moved = {
            rank: names for rank, one in recordings.items() if (names := _moved(one)) and not _joined(one)
        }
        if moved:
            return [self._moved(moved, recordings)]
        return Passed("rank, world size and address are those of the launcher")

    def _contradiction(self, rank: int, event: GroupEvent, names: tuple[str, ...]) -> Finding:
        name = names[0]
        given, told = event.arguments[name], event.environ[name.upper()]
        return self.fail(
            f"init_process_group was given {name} {given} in a process that its launcher told {name.upper()}={told}",
            why="The launcher started one process for each rank and gave it its place. The script counts "
            "otherwise, mostly because it starts processes itself, so groups of the wrong size wait for each other.",
            fix='dist.init_process_group(backend="nccl")     # under torchrun, without rank and world_size\n'
            "or run the script itself, without torchrun, where it calls mp.spawn: python train.py",
            ranks=(rank,),
            where=event.at,
            evidence=tuple(
                Evidence(
                    f"{one} {event.arguments[one]} given, {one.upper()}={event.environ[one.upper()]} told",
                    (rank,),
                )
                for one in names
            ),
        )

    def _moved(self, moved: dict[int, tuple[str, ...]], recordings: dict[int, Recording]) -> Finding:
        rank, names = next(iter(moved.items()))
        return self.fail(
            f"{ranks_phrase(moved)} overwrote {' and '.join(names)}, and did not get into the process group",
            why="torchrun's agent serves the rendezvous at the address that it put into the environment. At another "
            "one nobody listens, so init_process_group waits until its timeout.",
            fix="leave it as it is under torchrun, or set a default only:\n"
            'os.environ.setdefault("MASTER_PORT", "29500")',
            ranks=tuple(moved),
            where=_place(recordings[rank]),
            evidence=tuple(
                Evidence(_change(recordings[one], name), (one,))
                for one, names in moved.items()
                for name in names
            ),
        )


def _joinings(recordings: dict[int, Recording]) -> Iterator[tuple[int, GroupEvent]]:
    for rank, recording in recordings.items():
        yield from ((rank, event) for event in recording.groups if event.action in _JOINING)


def _contradicted(event: GroupEvent) -> tuple[str, ...]:
    """The arguments that differ from the launcher's; ranks of two nodes that count for themselves do not."""
    told = {name: event.environ.get(name.upper(), "") for name in ("rank", "world_size")}
    given = {name: event.arguments.get(name, -1) for name in told}
    return tuple(
        name
        for name, text in told.items()
        if text.isdigit() and given[name] >= 0 and given[name] != int(text)
    )


def _moved(recording: Recording) -> tuple[str, ...]:
    """What the script changed of the address that torchrun's agent serves."""
    joining = next((event for event in recording.groups if event.action in _JOINING), None)
    if joining is None or "TORCHELASTIC_RUN_ID" not in recording.environ:
        return ()
    if not str(joining.arguments.get("init_method", "env://")).startswith("env://"):
        return ()
    return tuple(
        name
        for name in _ADDRESS
        if name in recording.environ and joining.environ.get(name) != recording.environ[name]
    )


def _joined(recording: Recording) -> bool:
    return any(event.action == "init" for event in recording.groups)


def _place(recording: Recording) -> Where | None:
    return next((event.at for event in recording.groups if event.action in _JOINING), None)


def _change(recording: Recording, name: str) -> str:
    joining = next(event for event in recording.groups if event.action in _JOINING)
    now = show_value(name, joining.environ.get(name, ""))
    return f"{name}: {show_value(name, recording.environ[name])} from torchrun, {now} when it joined"

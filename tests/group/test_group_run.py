"""When the live group is given up, in simulated time: machines stall and starve, and that is no rank's fault."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpdoctor.blame.thresholds import HANG_SECONDS, LONGEST_DELAY, SPIN_SECONDS
from ddpdoctor.group import group_run, rank_files
from ddpdoctor.group.group_record import GroupRecord, Stage
from ddpdoctor.group.group_run import JOIN_SECONDS, GroupRun
from ddpdoctor.host.activity import Snapshot, ThreadTime
from ddpdoctor.launch import Launch
from tests.support.recorded import RecordedSystem

PIDS = (11, 12)
Used = Callable[[float], tuple[str, float, float]]
"""A rank's state, and its seconds on a CPU and in the queue for one, after some seconds."""


def waits(_: float) -> tuple[str, float, float]:
    return "S", 0.0, 0.0


def computes(seconds: float) -> tuple[str, float, float]:
    return "R", seconds, 0.0


def starves(seconds: float) -> tuple[str, float, float]:
    return "R", 0.02 * seconds, 0.98 * seconds


def half_starves(seconds: float) -> tuple[str, float, float]:
    return "R", 0.5 * seconds, 0.5 * seconds


def stands_in_queue(_: float) -> tuple[str, float, float]:
    return "R", 0.0, 0.0


def writes_to_a_slow_disk(_: float) -> tuple[str, float, float]:
    return "D", 0.0, 0.0


class Engine:
    """An engine that never ends by itself."""

    pid = 1

    def poll(self) -> None:
        return None

    def stop(self) -> None:
        pass


class Simulation:
    """A group of two ranks whose processes do the same, in a time that passes by sleeping."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now = folder, 1000.0
        self.stalls: list[tuple[float, float]] = []
        """When nobody runs at all, and for how long."""
        self.use: Used = waits
        self.agenda: list[tuple[float, int, dict[str, object]]] = []
        """What a rank writes, and when; in seconds since the start."""
        monkeypatch.setattr(group_run, "start_engine", lambda *_: Engine())
        monkeypatch.setattr(group_run, "take_rank_stacks", lambda *_: None)
        monkeypatch.setattr(group_run, "descendants", lambda pid: PIDS)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr("ddpdoctor.host.activity.snapshot", self._snapshot)
        monkeypatch.setattr("ddpdoctor.group.rank_state.is_gone", lambda pid: False)

    def joins(self, at: float = 0.0) -> None:
        for rank, pid in enumerate(PIDS):
            self.agenda += [
                (at, rank, {"event": "hello", "pid": pid, "host": "here"}),
                (at, rank, {"event": "joined"}),
                (at, rank, {"event": "begin", "name": "collectives", "limit": 20.0}),
            ]

    def finishes(self, at: float) -> None:
        self.agenda += [(at, rank, {"event": "finished"}) for rank in range(len(PIDS))]

    def run(self, backend: str = "gloo", *, imported: bool = True) -> tuple[GroupRecord, float]:
        """What becomes of the group, and after how many seconds."""
        if imported:
            (self.folder / rank_files.READY).write_text("{}")
        started = self.now
        self.agenda = [(started + at, rank, event) for at, rank, event in self.agenda]
        self.stalls = [(started + at, seconds) for at, seconds in self.stalls]
        run = GroupRun(
            Launch(nproc=len(PIDS), backend=backend), ["collectives"], self.folder, "0", RecordedSystem({})
        )
        record = run.finish(started + 1000.0, lambda _: None)
        return record, self.now - started

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        for stall in [stall for stall in self.stalls if stall[0] <= self.now]:
            self.stalls.remove(stall)
            self.now += stall[1]
            return  # the command is the first to go on
        for entry in [entry for entry in self.agenda if entry[0] <= self.now]:
            self.agenda.remove(entry)
            with rank_files.rank_file(self.folder, entry[1]).open("a") as events:
                events.write(json.dumps(entry[2]) + "\n")

    def _snapshot(self, pid: int, _: object) -> Snapshot:
        state, ran, queued = self.use(self.now)
        return Snapshot(state, pid, {pid: ThreadTime(int(ran * 1e9), int(queued * 1e9), int(self.now * 50))})


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    return Simulation(tmp_path, monkeypatch)


def test_an_import_without_a_cpu_is_given_up_late_and_is_told_with_its_time(group: Simulation) -> None:
    group.use = starves
    record, seconds = group.run(imported=False)
    assert (record.stage, record.hung) == (Stage.IMPORT, "import")
    assert record.broken == f"torch was not imported within {seconds:.0f} s"


def test_ranks_that_never_join_are_given_up_in_time(group: Simulation) -> None:
    record, seconds = group.run()
    assert record.hung == "joining the group"
    assert seconds == pytest.approx(JOIN_SECONDS, abs=2.5)


@pytest.mark.parametrize("use", [starves, stands_in_queue, writes_to_a_slow_disk, computes])
def test_what_ranks_lack_or_do_while_they_join_is_no_delay_of_theirs(group: Simulation, use: Used) -> None:
    group.use = use
    group.joins(JOIN_SECONDS + LONGEST_DELAY / 2)
    group.finishes(JOIN_SECONDS + LONGEST_DELAY / 2 + 1.0)
    record, _ = group.run()
    assert all(rank.finished for rank in record.ranks), record.broken


@pytest.mark.parametrize("use", [starves, writes_to_a_slow_disk, computes])
def test_ranks_that_never_join_are_given_up_at_last(group: Simulation, use: Used) -> None:
    group.use = use
    record, seconds = group.run()
    assert record.hung == "joining the group"
    assert seconds == pytest.approx(JOIN_SECONDS + LONGEST_DELAY, abs=2.5)


@pytest.mark.parametrize("at", [0.5, 3.0], ids=["joining", "measuring"])
def test_a_machine_that_stands_still_for_minutes_delays_nobody(group: Simulation, at: float) -> None:
    group.stalls = [(at, 300.0)]
    group.joins(1.0)
    group.finishes(5.0)
    record, seconds = group.run()
    assert all(rank.finished for rank in record.ranks), record.broken
    assert seconds > 300.0


@pytest.mark.parametrize(
    ("backend", "use", "limit"),
    [
        ("gloo", waits, HANG_SECONDS),
        ("nccl", waits, HANG_SECONDS),
        ("gloo", computes, SPIN_SECONDS),
        ("nccl", computes, 20.0),  # as its threads wait
        ("gloo", starves, SPIN_SECONDS + LONGEST_DELAY),
        ("gloo", half_starves, 2 * SPIN_SECONDS),
    ],
)
def test_a_measurement_that_never_ends(group: Simulation, backend: str, use: Used, limit: float) -> None:
    group.use = use
    group.joins()
    record, seconds = group.run(backend)
    assert record.hung == "collectives"
    assert seconds == pytest.approx(limit, abs=2.5)


def test_ranks_may_finish_while_their_processes_are_looked_at(
    group: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.joins()

    def is_gone(pid: int) -> bool:
        with rank_files.rank_file(group.folder, PIDS.index(pid)).open("a") as events:
            events.write('{"event": "finished"}\n')
        return True

    monkeypatch.setattr("ddpdoctor.group.rank_state.is_gone", is_gone)
    monkeypatch.setattr(Engine, "poll", lambda _: 0 if group.now > 1002.0 else None)
    record, _ = group.run()
    assert (record.broken, [rank.finished for rank in record.ranks]) == (None, [True, True])

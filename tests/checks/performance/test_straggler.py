"""DD601 on recorded runs: which rank works longer than the others, in what, and at which line."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Finding, Level, Passed, Source, Where
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.training import LineTime, LineTimes
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, step, where

STRAGGLER = check("DD601")
Phases = Callable[[int, int], Mapping[str, float]]
AT = where(60, "draw")


def timed(phases: Phases, steps: int = 34, world_size: int = 2, at: Where = AT, **fields: Any) -> Trace:
    """A job whose ranks wait for the slowest in each step, and which was looked at where it had other code to run."""
    given = {(rank, i): dict(phases(rank, i)) for rank in range(world_size) for i in range(steps)}
    spent = {key: sum(values.values()) for key, values in given.items()}

    def change(rank: int, one: Recording) -> Recording:
        own, looks = [], []
        for i in range(steps):
            whole = max(spent[other, i] for other in range(world_size))
            times = {"total": whole, "waits": whole - spent[rank, i], **given[rank, i]}
            looks.append(LineTimes(i, (LineTime(at, times.pop("code", 0.0)),)))
            own.append(step(i, phases=times))
        saves = tuple(save for save in one.saves) + tuple(fields.pop(f"saves{rank}", ()))
        return replace(one, steps=tuple(own), step_count=steps, record=Record.made(*looks, *saves))

    kept = {name: value for name, value in fields.items() if not name.startswith("saves")}
    return recorded(world_size, change, **kept)


def found(trace: Trace) -> Finding | None:
    result = ask(STRAGGLER.code, Source.RUN, trace)
    if isinstance(result, Passed):
        return None
    (finding,) = result
    return finding


def test_alike_ranks_are_no_stragglers() -> None:
    assert found(timed(lambda rank, i: {"forward": 0.03, "backward": 0.05, "code": 0.01})) is None


@pytest.mark.parametrize(
    ("lost", "pace"), [(0.005, 0.005), (0.02, 0.1), (0.005, 0.2), (1.0, 0.2), (0.2, 0.05)]
)
def test_a_rank_that_does_more_of_its_own(lost: float, pace: float) -> None:
    noise = random.Random(3)
    finding = found(
        timed(lambda rank, i: {"forward": pace + noise.gauss(0, 0.0005), "code": lost * (rank == 0)})
    )
    assert finding is not None
    assert "longer than the others in each training step, in the script's own code" in finding.headline
    assert (finding.level, finding.ranks, finding.where) == (Level.WARN, (0,), AT)


def test_what_it_takes_longer_is_the_difference_of_the_table() -> None:
    finding = found(timed(lambda rank, i: {"forward": 0.03, "data": 0.001, "code": 0.02 * rank + 0.002}))
    assert finding is not None
    assert finding.headline.startswith(
        "rank 1 takes 20.0 ms longer than the others in each training step, in the"
    )
    assert [each.text for each in finding.evidence] == [
        "works 53.0 ms: forward 30.0 ms, own code 22.0 ms, data 1.0 ms; waits 0 us",
        "works 33.0 ms: forward 30.0 ms, own code 2.0 ms, data 1.0 ms; waits 20.0 ms",
    ]


def test_a_rank_that_loads_slowly() -> None:
    finding = found(timed(lambda rank, i: {"data": 0.06 if rank == 1 else 0.001, "backward": 0.03}))
    assert finding is not None
    assert (
        finding.headline
        == "rank 1 takes 59.0 ms longer than the others in each training step, in loading data"
    )
    assert (finding.ranks, finding.where) == ((1,), where(45))


def test_workers_of_one_rank_are_slow_in_every_second_step() -> None:
    finding = found(timed(lambda rank, i: {"data": 0.08 * rank * (i % 2), "backward": 0.03}))
    assert finding is not None
    assert finding.ranks == (1,)


def test_a_rank_with_longer_samples() -> None:
    finding = found(timed(lambda rank, i: {"forward": 0.02 * (1 + rank), "backward": 0.04 * (1 + rank)}))
    assert finding is not None
    assert finding.headline == (
        "rank 1 takes 60.0 ms longer than the others in each training step, mostly in its forward and backward"
    )
    assert finding.where == where(48)


def test_a_rank_with_more_to_do_in_its_backward_alone() -> None:
    finding = found(timed(lambda rank, i: {"forward": 0.02 + 0.002 * rank, "backward": 0.04 * (1 + rank)}))
    assert finding is not None
    assert finding.headline.endswith("mostly in its backward")
    assert finding.where == where(49)


def test_a_slow_line_inside_of_a_backward() -> None:
    def phases(rank: int, _: int) -> Mapping[str, float]:
        return {"forward": 0.02 * (1 + rank), "backward": 0.04 * (1 + rank), "code": 0.05 * rank}

    finding = found(timed(phases, at=where(12, "hook")))
    assert finding is not None
    assert finding.where == where(12, "hook")


SHARES = {"data": 0.06, "forward": 0.11, "backward": 0.09, "step": 0.02, "code": 0.72}


@pytest.mark.parametrize(
    ("slower", "hosts", "silent"),
    [
        (dict.fromkeys(SHARES, 1.8), ("a", "a", "a"), True),
        (dict.fromkeys(SHARES, 1.6) | {"code": 1.7, "step": 0.7}, ("a", "a", "a"), True),
        (dict.fromkeys(SHARES, 1.8), ("b", "a", "a"), False),
        (dict.fromkeys(SHARES, 1.3) | {"code": 3.0}, ("a", "a", "a"), False),
        ({"data": 3.0, "forward": 3.0, "backward": 3.0, "step": 1.0, "code": 1.0}, ("a", "a", "a"), False),
    ],
    ids=["slow-core", "slow-core-but-for-short-phase", "slow-host", "slow-core-and-code", "longer-samples"],
)
def test_a_rank_whose_core_is_slower_does_not_more(
    slower: Mapping[str, float], hosts: tuple[str, ...], silent: bool
) -> None:
    noise = random.Random(7)

    def phases(rank: int, i: int) -> Mapping[str, float]:
        factor = {phase: slower[phase] if rank == 0 else 1.0 for phase in SHARES}
        return {name: 0.06 * SHARES[name] * factor[name] * noise.uniform(0.97, 1.03) for name in SHARES}

    trace = timed(phases, world_size=3)
    ranks = tuple(
        replace(rank, recording=replace(rank.recording, host=host))
        for rank, host in zip(trace.ranks, hosts, strict=True)
    )
    assert (found(replace(trace, ranks=ranks)) is None) is silent


def test_samples_of_any_length_on_every_rank() -> None:
    lengths = random.Random(1)
    assert found(timed(lambda rank, i: {"forward": lengths.uniform(0.01, 0.08)})) is None


def test_two_slow_ranks_of_six_at_one_line() -> None:
    finding = found(timed(lambda rank, i: {"forward": 0.02, "code": 0.03 * (rank in (0, 3))}, world_size=6))
    assert finding is not None
    assert finding.ranks == (0, 3)
    assert finding.evidence[1].ranks == (1, 2, 4, 5)


def test_one_step_in_ten_is_slow_at_one_line() -> None:
    finding = found(timed(lambda rank, i: {"forward": 0.05, "code": 0.1 if rank and i % 10 == 3 else 0.0}))
    assert finding is not None
    assert finding.headline == (
        "rank 1 takes 100.0 ms longer than the others in 4 of 32 training steps, in the script's own code"
    )
    assert finding.where == AT


@pytest.mark.parametrize(("wraps", "silent"), [(True, True), (False, False)])
def test_a_step_that_wraps_a_model_waits_for_the_others(wraps: bool, silent: bool) -> None:
    """The constructor waits for the rank that comes to it last, at a line of the script."""
    trace = timed(lambda rank, i: {"forward": 0.05, "code": 0.1 if rank and i % 10 == 3 else 0.0})
    made = tuple(replace(trace.recorded[0].wrappers[0], time=i + 0.8) for i in range(3, 34, 10))
    ranks = tuple(
        replace(
            rank,
            recording=replace(rank.recording, wrappers=(*rank.recording.wrappers, *(made if wraps else ()))),
        )
        for rank in trace.ranks
    )
    assert (found(replace(trace, ranks=ranks)) is None) is silent


def test_a_long_step_did_not_begin_what_began_before_the_steps_before_it() -> None:
    """The run has few slow steps, and the first of them takes as long as all before it."""
    trace = timed(lambda rank, i: {"forward": 0.05, "code": 1.7 if rank and i % 10 == 3 else 0.0})
    finding = found(trace)
    assert finding is not None
    assert "in 4 of 32 training steps" in finding.headline


def test_a_few_steps_without_a_cpu_are_the_machines() -> None:
    def phases(rank: int, i: int) -> Mapping[str, float]:
        late = rank and i % 10 == 3
        return {"forward": 0.05, "code": 0.02 if late else 0.0, "cpu_wait": 0.2 if late else 0.0}

    assert found(timed(phases)) is None


def test_pauses_at_no_line_are_the_machines() -> None:
    def phases(rank: int, i: int) -> Mapping[str, float]:
        return {"forward": 0.05, "data": 0.1 if rank and i % 10 == 3 else 0.0}

    assert found(timed(phases)) is None


@pytest.mark.parametrize(
    ("usual", "silent"),
    [({AT: 0.004}, True), ({AT: 0.001, where(61, "log"): 0.02}, False)],
    ids=["main", "side"],
)
def test_a_few_pauses_at_the_line_that_takes_most_of_the_time_are_the_machines(
    usual: Mapping[Where, float], silent: bool
) -> None:
    trace = timed(lambda rank, i: {"forward": 0.03, "code": 0.04 if rank and i % 10 == 3 else 0.0})

    def looks(one: Recording) -> Recording:
        own = [
            LineTimes(each.step, (*each.lines, *(LineTime(at, seconds) for at, seconds in usual.items())))
            for each in one.events(LineTimes)
        ]
        return replace(one, record=Record.made(*own))

    ranks = tuple(replace(rank, recording=looks(rank.recording)) for rank in trace.ranks)
    assert (found(replace(trace, ranks=ranks)) is None) is silent


def test_a_rank_that_has_no_cpu_is_no_straggler() -> None:
    """Other processes of the machine have it meanwhile."""
    slow = {"forward": 0.015, "cpu_wait": 0.045}
    assert found(timed(lambda rank, i: slow if rank else {"forward": 0.01, "cpu_wait": 0.0})) is None


def test_turns_on_a_busy_cpu_make_no_straggler() -> None:
    """Each rank is the slow one now and then."""
    assert found(timed(lambda rank, i: {"forward": 0.08 if i % 2 == rank else 0.01})) is None


def test_one_long_step_makes_no_straggler() -> None:
    assert (
        found(timed(lambda rank, i: {"forward": 0.01, "code": 5.0 if (rank, i) == (0, 9) else 0.0})) is None
    )


def test_a_burst_in_one_part_of_the_run_makes_no_straggler() -> None:
    assert found(timed(lambda rank, i: {"forward": 0.02 if rank and 5 < i < 14 else 0.01})) is None


def test_little_more_code_on_one_rank_is_no_straggler() -> None:
    assert found(timed(lambda rank, i: {"forward": 0.02, "code": 0.002 * (rank == 0)})) is None
    assert found(timed(lambda rank, i: {"forward": 0.5, "code": 0.008 * (rank == 0)})) is None


def test_the_device_of_a_rank_is_a_little_slower() -> None:
    assert found(timed(lambda rank, i: {"forward": 0.1 + 0.007 * rank, "code": 0.001})) is None


def test_saves_on_one_rank_now_and_then() -> None:
    saves = [Save(f"/jobs/{i}.pt", where(70), i + 0.5, i + 0.6, id=i) for i in range(3, 34, 10)]
    phases = {"forward": 0.5}
    trace = timed(lambda rank, i: {**phases, "code": 0.6 if i % 10 == 3 and rank == 0 else 0.0}, saves0=saves)
    assert found(trace) is None


@pytest.mark.parametrize("fields", [{"rehearsal": True}, {"steps": 5}])
def test_too_little_shows_no_pace(fields: dict) -> None:
    with pytest.raises(NotMeasured):
        STRAGGLER.examine_run(timed(lambda rank, i: {"data": 0.09 * rank}, **fields))


def test_a_rank_that_makes_more_micro_batches_of_a_step_is_no_straggler() -> None:
    trace = timed(lambda rank, i: {"forward": 0.01, "code": 0.01 * (rank == 0)})
    assert found(trace) is not None

    def halved(rank: RankTrace) -> RankTrace:
        assert rank.recording is not None
        twice = tuple(replace(it, backwards=it.backwards * 2) for it in rank.recording.steps)
        assert all(it.backwards for it in twice)
        return replace(rank, recording=replace(rank.recording, steps=twice))

    first, *others = trace.ranks
    with pytest.raises(NotMeasured):
        STRAGGLER.examine_run(replace(trace, ranks=(halved(first), *others)))

"""What is a hang and what is only slow: the rule on plain data, with real durations."""

from collections.abc import Callable

import pytest

from ddpdoctor.blame.liveness import HangDetector, JobState, Observation, RankActivity
from ddpdoctor.blame.thresholds import FIRST_SECONDS

Scene = Callable[[float], dict[int, Observation]]
WAITS, WORKS, SLEEPS = RankActivity.WAITS, RankActivity.WORKS, RankActivity.SLEEPS
BLOCKED, LEFT = RankActivity.BLOCKED, RankActivity.LEFT
HUNG = JobState.HUNG


def verdict_at(
    scene: Scene, seconds: float, detector: HangDetector | None = None, **look: float
) -> float | None:
    """When a job is first called hung, looking twice a second; None where it never is."""
    detector = detector or HangDetector()
    for half in range(int(seconds * 2) + 1):
        if detector.look(half / 2, scene(half / 2), **look).state is HUNG:
            return half / 2
    return None


def still(*activities: RankActivity, wakes_at: float = 0.0) -> Scene:
    """Ranks that do this from the beginning on."""
    return lambda now: {
        rank: Observation(activity, 0.0, max(0.0, wakes_at - now) if activity is SLEEPS else 0.0)
        for rank, activity in enumerate(activities)
    }


@pytest.mark.parametrize(
    "activities",
    [
        (WAITS, WAITS),
        (WAITS, BLOCKED),
        (WAITS, LEFT),
        (WAITS, WAITS, WAITS, BLOCKED),
        (WAITS, LEFT, LEFT, LEFT),
        (WAITS, SLEEPS),
    ],
)
def test_a_hang_is_told_within_six_seconds(activities: tuple[RankActivity, ...]) -> None:
    told = verdict_at(still(*activities), 60)
    assert told is not None
    assert 4 <= told <= 6


def test_ranks_without_a_process_group_may_stand_as_long_as_they_like() -> None:
    """As workers of Ray do, which go on after their training function has destroyed the group."""
    idle = Observation(BLOCKED, 0.0, destroyed_group=True)
    assert verdict_at(lambda now: {0: idle, 1: idle}, 600) is None
    assert verdict_at(lambda now: {0: idle, 1: Observation(BLOCKED, 0.0)}, 600) is not None
    assert verdict_at(lambda now: {0: idle, 1: Observation(WAITS, 0.0)}, 60) is not None


def test_nccl_may_set_up_its_connections_for_a_minute() -> None:
    detector = HangDetector()
    detector.together = FIRST_SECONDS["nccl"]
    assert verdict_at(still(WAITS, WAITS), 59, detector) is None
    told = verdict_at(still(WAITS, LEFT), 60, HangDetector())
    assert told is not None
    assert told <= 6


@pytest.mark.parametrize(
    "activities",
    [
        (WORKS, WORKS),  # evaluation on every rank, a first step 20 times slower, compiling
        (SLEEPS, SLEEPS),  # nobody waits for anybody
        (WAITS, WORKS),  # rank 1 evaluates, tokenizes, writes a checkpoint
        (WAITS, WAITS, WAITS, WORKS),
        (LEFT, LEFT),
        (LEFT, WORKS),
    ],
)
def test_who_only_takes_long_is_never_hung(activities: tuple[RankActivity, ...]) -> None:
    assert verdict_at(still(*activities), 300) is None


def test_a_rank_that_works_too_long_for_the_process_group() -> None:
    assert verdict_at(still(WAITS, WORKS), 400, timeout=600.0) == pytest.approx(300, abs=1)


def test_a_short_timeout_of_the_process_group_speaks_for_itself() -> None:
    assert verdict_at(still(WAITS, WORKS), 30, timeout=30.0) is None


def test_everybody_blocked_and_nobody_waits_is_a_hang_after_a_minute() -> None:
    told = verdict_at(still(BLOCKED, BLOCKED), 90)
    assert told == pytest.approx(60, abs=1)


@pytest.mark.parametrize(("sleep", "is_hung"), [(20.0, False), (50.0, False), (3600.0, True)])
def test_a_sleep_that_ends_soon_is_waited_for(sleep: float, is_hung: bool) -> None:
    def scene(now: float) -> dict[int, Observation]:
        if now < sleep:
            return still(WAITS, SLEEPS, wakes_at=sleep)(now)
        return {0: Observation(WORKS, sleep), 1: Observation(WORKS, sleep)}

    assert (verdict_at(scene, 70) is not None) == is_hung


def test_a_loop_that_sleeps_for_moments_is_no_sleep_that_ends() -> None:
    assert (
        verdict_at(lambda now: {0: Observation(WAITS, 0.0), 1: Observation(SLEEPS, 0.0, 0.1)}, 10) is not None
    )


def test_a_loop_of_long_sleeps_is_given_a_minute() -> None:
    told = verdict_at(lambda now: {0: Observation(WAITS, 0.0), 1: Observation(SLEEPS, 0.0, 5.0)}, 90)
    assert told is not None
    assert 50 < told <= 62


def pauses(*lengths: float, then: Scene) -> Scene:
    """A job that stands still for as long as this, goes on each time, and stands still in the end."""
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]

    def scene(now: float) -> dict[int, Observation]:
        moved = max((end for end in ends if end <= now), default=0.0)
        return {rank: Observation(one.activity, moved) for rank, one in then(now).items()}

    return scene


def test_a_run_that_pauses_is_given_three_times_its_longest_pause() -> None:
    scene = pauses(1, 4, 4, 1, then=still(WAITS, BLOCKED))
    told = verdict_at(scene, 60)
    assert told == pytest.approx(10 + 12, abs=0.5)


@pytest.mark.parametrize(("before", "limit"), [(BLOCKED, 5), (WAITS, 45)])
def test_a_slow_start_gives_no_time_to_ranks_that_all_wait(before: RankActivity, limit: float) -> None:
    def scene(now: float) -> dict[int, Observation]:
        moved, other = (0.0, before) if now < 15 else (15.0, WAITS)
        return {0: Observation(WAITS, moved), 1: Observation(other, moved)}

    detector = HangDetector(least=30.0)
    detector.together = 20.0 if before is WAITS else 5.0
    assert verdict_at(scene, 100, detector) == pytest.approx(15 + limit, abs=0.5)


OUTLIER = 15.0


def after_outlier(*, all_waited: bool, hours: float) -> HangDetector:
    """Has followed a job for hours, in which ranks once waited for 15 s; it trained at each look before and after."""
    detector = HangDetector(least=30.0)
    detector.together = 20.0
    for half in range(int(OUTLIER * 2)):
        waits = WAITS if all_waited or half > OUTLIER * 2 - 4 else BLOCKED
        detector.look(half / 2, {0: Observation(WAITS, 0.0), 1: Observation(waits, 0.0)})
    for second in range(int(hours * 3600)):
        moved = OUTLIER + second
        detector.look(moved, {0: Observation(WORKS, moved), 1: Observation(WAITS, moved)})
    detector.together = 5.0
    return detector


def from_now(detector: HangDetector, begin: float, *activities: RankActivity) -> float | None:
    """How long ranks do this until it is called a hang."""
    for half in range(200):
        ranks = {rank: Observation(activity, begin) for rank, activity in enumerate(activities)}
        if detector.look(begin + half / 2, ranks).state is HUNG:
            return half / 2
    return None


@pytest.mark.parametrize(
    ("all_waited", "hours", "then", "limit"),
    [
        (True, 1.0, WAITS, 5),
        (True, 0.1, WAITS, 45),  # what made it long may still be there
        (False, 0.1, WAITS, 5),  # a rank was away until shortly before its end
        (True, 1.0, BLOCKED, 45),  # checkpoints may be hours apart
        (True, 1.0, WORKS, None),  # an evaluation of ten times its usual time
    ],
)
def test_one_long_pause_of_a_long_job(
    all_waited: bool, hours: float, then: RankActivity, limit: float | None
) -> None:
    detector = after_outlier(all_waited=all_waited, hours=hours)
    assert from_now(detector, OUTLIER + hours * 3600, WAITS, then) == limit


def test_time_in_which_nobody_could_look_is_no_pause() -> None:
    """A machine that stood still, and ranks that their launcher starts anew."""
    detector = HangDetector()
    detector.look(0.0, still(WAITS, WAITS)(0.0))
    detector.look(0.5, still(WAITS, WAITS)(0.5))
    detector.go_on(40.0, seen=False)
    assert from_now(detector, 40.5, WAITS, WAITS) == 5


def test_pauses_never_make_it_more_than_a_minute() -> None:
    detector = HangDetector(least=30.0)
    told = verdict_at(pauses(25, 28, then=still(WAITS, BLOCKED)), 200, detector)
    assert told == pytest.approx(53 + 60, abs=0.5)


def test_hang_after_is_obeyed() -> None:
    assert verdict_at(still(WAITS, BLOCKED), 30, HangDetector(12.0)) == pytest.approx(12, abs=0.5)
    assert verdict_at(still(WAITS, SLEEPS), 15, HangDetector(3.0)) == pytest.approx(3, abs=0.5)
    assert verdict_at(still(SLEEPS, SLEEPS, wakes_at=50.0), 45, HangDetector(3.0)) is None


def test_a_sleep_known_to_end_is_no_hang_whatever_the_user_has_chosen() -> None:
    def scene(now: float) -> dict[int, Observation]:
        if now < 20:
            return still(WAITS, SLEEPS, wakes_at=20.0)(now)
        return {0: Observation(WORKS, 20.0), 1: Observation(WORKS, 20.0)}

    assert verdict_at(scene, 30, HangDetector(3.0)) is None
    assert verdict_at(still(WAITS, SLEEPS, wakes_at=3600.0), 15, HangDetector(3.0)) == 3.0


def test_a_server_that_nobody_sees_is_given_a_minute() -> None:
    def asks(now: float) -> dict[int, Observation]:
        return {0: Observation(WAITS, 0.0), 1: Observation(BLOCKED, 0.0, at_least=60.0)}

    assert verdict_at(asks, 90) == pytest.approx(60, abs=0.5)
    assert verdict_at(asks, 90, HangDetector(3.0)) == 3.0


def test_a_closer_look_that_shows_work_is_a_sign_of_progress() -> None:
    detector = HangDetector()
    assert verdict_at(still(WAITS, SLEEPS), 30, detector) == 5.0
    detector.go_on(6.0)
    later = [now for now in range(6, 60) if detector.look(now, still(WAITS, SLEEPS)(now)).state is HUNG]
    assert later[0] == 6 + 3 * 6, "its pause has ended, and the next is given three times as long"


def test_who_has_waited_too_long_is_overdue() -> None:
    judgement = HangDetector().look(1000.0, still(WAITS, WORKS)(1000.0))
    assert (judgement.state, judgement.overdue) == (HUNG, True)


def test_a_production_job_is_given_longer_where_somebody_could_come_back() -> None:
    assert verdict_at(still(WAITS, BLOCKED), 60, HangDetector(least=30.0)) == pytest.approx(30, abs=0.5)
    assert verdict_at(still(WAITS, WAITS), 60, HangDetector(least=30.0)) == pytest.approx(5, abs=0.5)


def test_ranks_on_other_hosts_may_work() -> None:
    assert verdict_at(still(WAITS, WAITS), 300, HangDetector(elsewhere=True)) is None
    assert verdict_at(still(WAITS, BLOCKED), 30, HangDetector(elsewhere=True)) is not None
    told = verdict_at(still(WAITS, WAITS), 1000, HangDetector(elsewhere=True))
    assert told == pytest.approx(900, abs=1)


def test_a_standstill_that_is_known_is_not_told_again() -> None:
    detector = HangDetector()
    assert verdict_at(still(WAITS, BLOCKED), 30, detector) is not None
    detector.accept()
    assert detector.look(50.0, still(WAITS, BLOCKED)(50.0)).state is JobState.SLOW
    moved = {0: Observation(WAITS, 51.0), 1: Observation(BLOCKED, 51.0)}
    assert detector.look(52.0, moved).state is JobState.MOVES
    assert detector.look(60.0, moved).state is HUNG


def test_what_is_told_of_who_waits() -> None:
    judgement = HangDetector().look(
        40.0, {0: Observation(WORKS, 0.0), 1: Observation(WAITS, 5.0), 2: Observation(LEFT, 1.0)}
    )
    assert (judgement.state, judgement.waiting, judgement.others, judgement.waited) == (
        JobState.SLOW,
        (1,),
        (0,),
        35.0,
    )

"""Which processes belong to one job of a launch line."""

from ddpdoctor.trace.reader import successive_jobs
from ddpdoctor.trace.recording import Recording


def process(host: str, rank: int, started: float, last: float) -> Recording:
    return Recording(host=host, environ={"RANK": str(rank)}, started=started, last=last)


def job(began: float, last: float, *ranks: int, host: str = "a") -> dict[tuple[str, float, int], Recording]:
    return {(host, began, rank): process(host, rank, began + rank / 10, last) for rank in ranks}


def began(spans: dict[tuple[str, float, int], Recording]) -> list[list[tuple[float, int]]]:
    return [sorted((begin, rank) for _, begin, rank in keys) for keys in successive_jobs(spans)]


def test_a_job_of_more_ranks_begins_with_one_that_the_job_before_had_not() -> None:
    spans = {**job(1.0, 4.0, 0, 1), ("a", 5.0, 2): process("a", 2, 4.9, 8.0), **job(5.0, 8.0, 0, 1)}
    assert began(spans) == [[(1.0, 0), (1.0, 1)], [(5.0, 0), (5.0, 1), (5.0, 2)]]


def test_ranks_that_run_one_after_the_other_are_of_one_job() -> None:
    assert began({**job(1.0, 3.0, 0), **job(6.0, 8.0, 1)}) == [[(1.0, 0), (6.0, 1)]]


def test_who_takes_a_rank_while_another_runs_is_of_its_job() -> None:
    assert began({**job(1.0, 9.0, 0, 1), **job(3.0, 8.0, 0)}) == [[(1.0, 0), (1.0, 1), (3.0, 0)]]


def test_jobs_of_several_hosts_belong_together_by_their_order_whatever_their_clocks_say() -> None:
    first = {**job(1.0, 4.0, 0), **job(801.0, 804.0, 1, host="b")}
    second = {**job(5.0, 8.0, 0), **job(805.0, 808.0, 1, host="b")}
    assert began({**first, **second}) == [[(1.0, 0), (801.0, 1)], [(5.0, 0), (805.0, 1)]]
    assert len(began({**first, **job(5.0, 8.0, 0)})) == 1


def test_no_process_is_no_job() -> None:
    assert successive_jobs({}) == []

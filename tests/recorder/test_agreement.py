"""What ranks agree on before a run is cut short: all end a pass after the same batch, or none does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.recorder import agreement
from ddpdoctor.recorder.agreement import Agreement


def test_a_rank_is_waited_for_where_the_machine_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, turns = tmp_path / "pass.1", []

    def stand_still(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 2:
            answer.write_text("cut")

    monkeypatch.setattr(agreement, "time", SimpleNamespace(sleep=stand_still, monotonic=lambda: 0.0))
    assert Agreement._wait_for([str(answer)], 1.0) == ["cut"]


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []
    monkeypatch.setattr(agreement, "time", SimpleNamespace(sleep=turns.append, monotonic=lambda: 0.0))
    assert Agreement._wait_for([str(tmp_path / "pass.1")], 1.0) == [None]
    assert sum(turns) == pytest.approx(1.0)


class Rank:
    """One of two, in a loop of which both have shown the same."""

    def __init__(self, number: int, folder: Any, monkeypatch: pytest.MonkeyPatch, job: int = 0) -> None:
        self.number, self._monkeypatch = number, monkeypatch
        session: Any = SimpleNamespace(
            folder=str(folder),
            rank=number,
            torch=SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: False)),
            shared={"Training": SimpleNamespace()},
        )
        self._agreement = Agreement(session)
        self._pass: Any = SimpleNamespace(shared="loop-0", agreed=None, at=None, taken=0)
        (folder / f"agreed-0-{job}-pass-loop-0.{number}").write_text("8 8 (True, True)")

    def cuts(self, taken: int, *, enough: bool) -> bool:
        self._monkeypatch.setenv("RANK", str(self.number))
        self._pass.taken = taken
        return self._agreement.cuts(self._pass, enough=enough)


@pytest.fixture
def ranks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> list[Rank]:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    return [Rank(number, tmp_path, monkeypatch) for number in range(2)]


def test_a_rank_that_left_an_update_out_ends_the_pass_where_the_other_has_ended_it(ranks: list[Rank]) -> None:
    assert ranks[1].cuts(8, enough=True)
    assert ranks[0].cuts(8, enough=False)


def test_the_other_goes_on_where_that_rank_has_gone_on(ranks: list[Rank]) -> None:
    assert not ranks[0].cuts(8, enough=False)
    assert not ranks[1].cuts(8, enough=True)
    assert ranks[0].cuts(9, enough=True)
    assert ranks[1].cuts(9, enough=True)


def test_what_the_ranks_of_a_job_agreed_on_says_nothing_of_the_next_job(
    ranks: list[Rank], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [rank.cuts(8, enough=True) for rank in ranks] == [True, True]
    next_ranks = [Rank(number, tmp_path, monkeypatch, job=1) for number in range(2)]
    assert [rank.cuts(8, enough=False) for rank in next_ranks] == [False, False]

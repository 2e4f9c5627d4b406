"""What ranks agree on before a run is cut short."""

from pathlib import Path
from types import SimpleNamespace

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

    monkeypatch.setattr(agreement, "time", SimpleNamespace(sleep=stand_still))
    assert Agreement._wait_for([str(answer)], 1.0) == ["cut"]


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []
    monkeypatch.setattr(agreement, "time", SimpleNamespace(sleep=turns.append))
    assert Agreement._wait_for([str(tmp_path / "pass.1")], 1.0) == [None]
    assert sum(turns) == pytest.approx(1.0)

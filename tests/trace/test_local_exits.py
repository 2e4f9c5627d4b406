"""Which training loops end by a number that differs between ranks."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.recorder.loop_numbers import LoopNumbers
from ddpdoctor.trace.local_exits import LocalExit, local_exit
from ddpdoctor.trace.record import Record
from tests.support.recordings import recording

LOOP = """\
def train(args, limit):
    for epoch in range(100):
        train_epoch()
        loss = validate()
        {}
"""


def found(
    folder: Path, text: str, *held: Mapping[str, float | None], line: int = 3, call: str = ""
) -> LocalExit | None:
    """What is found where each rank held these numbers at a line."""
    file = folder / "train.py"
    file.write_text(text)
    at = Where(str(file), line, "train")
    calls = [Collective(99.0, at, call)] if call else []
    return local_exit(
        {
            rank: replace(recording(rank), record=Record.made(LoopNumbers(1, 3, at, numbers), *calls))
            for rank, numbers in enumerate(held)
        }
    )


@pytest.mark.parametrize(
    ("ends", "numbers"),
    [
        ("if loss < 0.1: break", {}),
        ("if loss.item() < limit: return", {}),
        ("if limit and loss < limit:\n            break", {"limit": 1.0}),
        ("bad = 0 if loss < 1 else bad + 1\n        if bad > 3: break", {"bad": 0.0}),
        ("if loss < best: bad = 0\n        else: bad += 1\n        if bad > 3: break", {"bad": 0.0}),
        ("stopper(loss)\n        if stopper.stop: break", {"stopper.stop": 0.0}),
        ("stopper.step(loss)\n        if stopper.stop: break", {"stopper.stop": 0.0}),
        ("if stopper(loss): break", {}),
    ],
)
def test_a_loop_that_ends_by_its_own_loss(tmp_path: Path, ends: str, numbers: Mapping[str, float]) -> None:
    way_out = found(tmp_path, LOOP.format(ends), {"loss": 0.5, **numbers}, {"loss": 0.7, **numbers})
    assert way_out is not None
    assert way_out.name == "loss"
    assert way_out.values == {0: 0.5, 1: 0.7}
    text = (tmp_path / "train.py").read_text().splitlines()
    assert "break" in "".join(text[way_out.at.line - 1 :]) or "return" in text[way_out.at.line - 1]


def test_a_loop_whose_own_condition_is_a_count(tmp_path: Path) -> None:
    text = "tokens = 0\nwhile tokens < budget:\n    step()\n    tokens += count\n"
    way_out = found(tmp_path, text, {"tokens": 10, "budget": 99}, {"tokens": 12, "budget": 99})
    assert way_out is not None
    assert (way_out.at.line, way_out.name) == (2, "tokens")


@pytest.mark.parametrize(
    ("ends", "numbers"),
    [
        # The early stop is switched off, or nobody can tell.
        ("if args.early_stop and loss > 1: break", {"args.early_stop": 0.0}),
        ("if config['early_stop'] and loss > 1: break", {}),
        ("if limit is not None and loss < limit: break", {"limit": None}),
        ("if args.patience > 0:\n            if loss > 1: break", {"args.patience": 0.0}),
        ("if bad >= patience: break\n        bad += loss > 1", {"patience": float("inf")}),
        # Ranks answer alike.
        ("if math.isnan(loss): break", {}),
        ("if agree(loss > 1): break", {}),
        # It does not end the loop.
        ("if loss > 1: continue", {}),
        ("for part in parts:\n            if loss > 1: break", {}),
        # It is another number by then.
        ("if loss > 1: break\n        loss = 0.0", {}),
        ("elapsed = time.time() - loss\n        if elapsed > 5: break", {"elapsed": 3.0}),
    ],
)
def test_a_loop_of_which_that_is_not_certain(tmp_path: Path, ends: str, numbers: Mapping[str, float]) -> None:
    held = {"loss": 0.5, **numbers}, {"loss": 0.7, **numbers}
    assert found(tmp_path, LOOP.format(ends), *held) is None


def test_what_ranks_hold_alike_decides_alike(tmp_path: Path) -> None:
    ends = LOOP.format("if loss < 0.1: break")
    assert found(tmp_path, ends, {"loss": 0.5}, {"loss": 0.5001}) is None
    assert found(tmp_path, ends, {"loss": 0.5}, {"loss": float("nan")}) is None


def test_what_the_inner_loop_changes_is_not_what_the_condition_read(tmp_path: Path) -> None:
    text = "for epoch in epochs:\n    for batch in loader:\n        loss = model(batch)\n    if loss < 1: break\n"
    assert found(tmp_path, text, {"loss": 0.5}, {"loss": 0.7}) is None


CALLBACK = """\
class EarlyStopping:
    def on_epoch_end(self, engine):
        self.bad = 0 if engine.loss < self.best else self.bad + 1
        if self.bad > 3:
            engine.stop = True


class Engine:
    def run(self):
        for epoch in range(100):
            self.train_epoch()
            self.loss = self.validate()
            for callback in self.callbacks:
                callback.on_epoch_end(self)
            if self.stop:
                break
"""


def test_a_callback_that_ends_a_loop_by_what_the_loop_holds(tmp_path: Path) -> None:
    way_out = found(
        tmp_path,
        CALLBACK,
        {"self.loss": 0.5, "self.stop": 0.0},
        {"self.loss": 0.7, "self.stop": 0.0},
        line=11,
    )
    assert way_out is not None
    assert (way_out.at.line, way_out.name) == (15, "self.loss")


def test_no_function_is_copied_that_changes_nothing_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("ddpdoctor.trace.assignments.deepcopy")
    text = CALLBACK.replace("engine.stop = True", "self.stop = True")
    held = [{"self.loss": loss, "self.stop": 0.0} for loss in (0.5, 0.7)]
    assert found(tmp_path, text, *held, line=11) is None


@pytest.mark.parametrize(
    ("stops_if", "validated"), [("engine.epoch >= self.limit", 0.7), ("engine.loss < self.best", 0.5)]
)
def test_what_a_callback_only_logs_decides_nothing(tmp_path: Path, stops_if: str, validated: float) -> None:
    logging = CALLBACK.replace("self.bad > 3:", f"{stops_if}:").replace(
        "self.bad = 0 if engine.loss < self.best else self.bad + 1",
        "print(engine.loss, engine.train_loss)",
    )
    text = logging.replace("self.train_epoch()", "self.train_loss = self.train_epoch()")
    held = [
        {"self.loss": loss, "self.train_loss": trained, "self.stop": 0.0}
        for loss, trained in ((0.5, 0.2), (validated, 0.3))
    ]
    assert found(tmp_path, text, *held, line=11) is None


def test_what_is_exchanged_may_be_what_decides(tmp_path: Path) -> None:
    ends = LOOP.format("stopper(loss)\n        if stopper.stop: break")
    held = {"loss": 0.5, "stopper.stop": 0.0}, {"loss": 0.7, "stopper.stop": 0.0}
    assert found(tmp_path, ends, *held, call="all_reduce") is None
    # The other ranks have what they had.
    assert found(tmp_path, ends, *held, call="reduce") is not None

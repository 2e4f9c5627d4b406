"""Which training loops end by a number or a clock that differs between ranks."""

import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.excuses import noted
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


import math
import time
from datetime import datetime
import torch
import torch.distributed as dist
import numpy as np

start = time.time()
HOURS = 3600
BUDGET = 3 * HOURS


class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.stop = patience, 99, 0, False

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(value, self.best)
        self.stop = self.bad > self.patience
        return self.stop

    def step(self, value):
        return self(value)

    def count(self, value):
        if value < self.best:
            self.best = value
            self.bad = 0
        else:
            self.bad += 1
        if self.bad > self.patience:
            self.stop = True


class Agreed(Stopper):
    def __call__(self, value):
        number = torch.tensor(value)
        dist.all_reduce(number)
        return super().__call__(number.item())


stopper, agreed = Stopper(3), Agreed(3)


def agree(value):
    number = torch.tensor(float(value))
    dist.broadcast(number, 0)
    return number.item()


def is_over(limit):
    return limit is not None and time.monotonic() > limit


def spent():
    return time.monotonic() - start > 60
"""
LOSSES = ({"loss": 0.5}, {"loss": 0.7})


def found(
    folder: Path, text: str, *held: Mapping[str, float | None], line: int = 3, call: str = ""
) -> LocalExit | None:
    """What is found where each rank held these numbers at a line."""
    file = folder / f"train_{zlib.crc32(text.encode())}.py"  # a file is read once
    file.write_text(text)
    at = Where(str(file), line, "train")
    calls = [Collective(99.0, at, call)] if call else []
    return local_exit(
        {
            rank: replace(
                recording(rank), script=str(file), record=Record.made(LoopNumbers(1, 3, at, numbers), *calls)
            )
            for rank, numbers in enumerate(held)
        }
    )


def both(**numbers: float | None) -> list[dict[str, float | None]]:
    return [{**losses, **numbers} for losses in LOSSES]


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
        ("stopper.count(loss)\n        if stopper.stop: break", {"stopper.stop": 0.0}),
        ("if stopper(loss): break", {}),
        ("if loss < 0.1: raise SystemExit(0)", {}),
    ],
)
def test_a_loop_that_ends_by_its_own_loss(tmp_path: Path, ends: str, numbers: Mapping[str, float]) -> None:
    way_out = found(tmp_path, LOOP.format(ends), *both(**numbers))
    assert way_out is not None
    assert way_out.name == "loss"
    assert way_out.values == {0: 0.5, 1: 0.7}
    assert way_out.at.function == "train"
    text = Path(way_out.at.file).read_text().splitlines()
    here = "".join(text[way_out.at.line - 1 : way_out.at.line + 1])
    assert any(word in here for word in ("break", "return", "SystemExit"))


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
        ("if bad >= limit: break\n        bad += loss > 1", {"limit": float("inf")}),
        # Ranks answer alike.
        ("if math.isnan(loss): break", {}),
        ("if not np.isfinite(loss): break", {}),
        ("if loss.isnan(): break", {}),
        ("if agree(loss > 1): break", {}),
        ("if agreed(loss): break", {}),
        ("loss = agree(loss)\n        if loss > 1: break", {}),
        # It does not end the loop.
        ("if loss > 1: continue", {}),
        ("for part in parts:\n            if loss > 1: break", {}),
        # It is another number by then.
        ("if loss > 1: break\n        loss = 0.0", {}),
        ("elapsed = time.time() - loss\n        if agree(elapsed) > 5: break", {"elapsed": 3.0}),
    ],
)
def test_a_loop_of_which_that_is_not_certain(tmp_path: Path, ends: str, numbers: Mapping[str, float]) -> None:
    assert found(tmp_path, LOOP.format(ends), *both(**numbers)) is None


@pytest.mark.parametrize("name", ["patience", "budget", "early_stop", "rank"])
@pytest.mark.parametrize(("limit", "ends"), [(float("inf"), False), (5.0, True)])
def test_only_the_limit_decides_and_no_name(tmp_path: Path, name: str, limit: float, ends: bool) -> None:
    text = LOOP.format(f"bad += loss > 1\n        if bad >= {name}: break")
    assert (found(tmp_path, text, *both(**{name: limit})) is not None) is ends


def test_what_ranks_hold_alike_decides_alike(tmp_path: Path) -> None:
    ends = LOOP.format("if loss < 0.1: break")
    assert found(tmp_path, ends, {"loss": 0.5}, {"loss": 0.5001}) is None
    assert found(tmp_path, ends, {"loss": 0.5}, {"loss": float("nan")}) is None


def test_the_loss_of_the_last_batch(tmp_path: Path) -> None:
    text = "for epoch in epochs:\n    for x in loader:\n        loss = model(x)\n        {}\n    if loss < 1: break\n"
    assert found(tmp_path, text.format("pass"), *LOSSES) is not None
    averaged = "from torch import distributed as dist\n" + text.format("dist.all_reduce(loss)")
    assert found(tmp_path, averaged, *LOSSES, line=4) is None


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
    held = [{"self.loss": loss, "self.stop": 0.0} for loss in (0.5, 0.7)]
    way_out = found(tmp_path, CALLBACK, *held, line=11)
    assert way_out is not None
    assert (way_out.at.line, way_out.at.function, way_out.name) == (15, "Engine.run", "self.loss")


def test_a_callback_that_changes_nothing_of_its_caller(tmp_path: Path) -> None:
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


def test_what_is_exchanged_may_be_what_decides_where_code_was_not_read(tmp_path: Path) -> None:
    ends = LOOP.format("if of_a_library(loss): break")
    assert found(tmp_path, ends, *LOSSES, call="all_reduce") is None
    # The other ranks have what they had.
    assert found(tmp_path, ends, *LOSSES, call="reduce") is not None


@pytest.mark.parametrize(
    "ends",
    [
        "if time.time() - start > 600: break",
        "if time.time() - start >= BUDGET: return",
        "took = time.time() - start\n        if took > BUDGET:\n            break",
        "if (datetime.now() - datetime(2026, 1, 1)).seconds > 60: break",
        "if spent(): break",
        "if is_over(99.0): break",
    ],
)
def test_a_loop_that_ends_by_the_clock(tmp_path: Path, ends: str) -> None:
    way_out = found(tmp_path, LOOP.format(ends), {"loss": 0.5}, {"loss": 0.5})
    assert way_out is not None
    assert way_out.at.line in (5, 6)
    assert (way_out.name, way_out.values) == ("", {})


def test_a_loop_whose_own_condition_is_the_clock(tmp_path: Path) -> None:
    text = (
        "import time\nstart = time.monotonic()\nwhile time.monotonic() - start < 60:\n    optimizer.step()\n"
    )
    way_out = found(tmp_path, text, {"epoch": 0.0}, {"epoch": 0.0}, line=4)
    assert way_out is not None
    assert way_out.at.line == 3


@pytest.mark.parametrize(
    "ends",
    [
        # The limit may be none, or for tests alone.
        "if limit and time.time() - start > limit: break",
        "if time.time() - start > limit: break",
        "if is_over(None): break",
        # What is computed from the time is exchanged.
        "stop = torch.tensor(time.time() - start > 600)\n        dist.broadcast(stop, 0)\n        if stop: break",
        "took = agree(time.time() - start)\n        if took > 600:\n            break",
        # The loop goes on.
        "if time.time() - start > 600: print('slow')",
        "if epoch > 600: break",
    ],
)
def test_a_loop_of_which_it_is_not_certain_that_the_clock_ends_it(tmp_path: Path, ends: str) -> None:
    assert found(tmp_path, LOOP.format(ends), {"limit": None}, {"limit": None}) is None


def test_the_excuse_is_told(tmp_path: Path) -> None:
    with noted() as applied:
        assert found(tmp_path, LOOP.format("if config['stop'] and loss > 1: break"), *both()) is None
        assert found(tmp_path, LOOP.format("if loss > 1: break"), *both()) is not None
    (entry,) = applied
    assert ".py:5" in entry.text


_RENAMED = {
    "patience": "waits",
    "Stopper": "AverageMeter",
    "stopper": "rank_timer",
    "stop": "time",
    "best": "now",
    "bad": "elapsed",
    "value": "is_main",
    "loss": "clock",
    "limit": "monotonic",
    "Agreed": "Lone",
    "agreed": "own_rank",
    "agree": "isnan",
    "spent": "finished",
}


def _renamed(text: str) -> str:
    """With other names for all that the script defines; what it takes from modules keeps its own."""
    return re.sub(r"(?<![\w.])[\w.]+", lambda it: _under_other_names(it[0]), text)


def _under_other_names(dotted: str) -> str:
    first, *parts = dotted.split(".")
    if first in ("time", "math", "torch", "dist", "np"):
        return dotted
    return ".".join(_RENAMED.get(part, part) for part in (first, *parts))


@pytest.mark.parametrize(
    ("ends", "ends_by"),
    [
        ("stopper(loss)\n        if stopper.stop: break", "clock"),
        ("if loss < best: bad = 0\n        else: bad += 1\n        if bad > 3: break", "clock"),
        ("if agreed(loss): break", None),
        ("loss = agree(loss)\n        if loss > 1: break", None),
        ("if bad >= limit: break\n        bad += loss > 1", None),
    ],
)
def test_the_same_loop_under_other_names(tmp_path: Path, ends: str, ends_by: str | None) -> None:
    held = [{"clock": loss, "monotonic": float("inf")} for loss in (0.5, 0.7)]
    way_out = found(tmp_path, _renamed(LOOP.format(ends)), *held)
    assert (way_out and way_out.name) == ends_by

"""Which loop around a pass counts its epochs, as the lines show that ``set_epoch`` adds."""

import pytest

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patches
from ddpdoctor.trace import Trace
from tests.fix.cases import finding_at, patched
from tests.fix.test_one_process import HEAD, added

PASS = "for x in loader:  # here\n"


IN_CLASS = "class Trainer:\n    def __init__(self, data):\n        self.sampler = DistributedSampler(data)\n"
PASS_OF_CLASS = "            for x in self.loader:  # here\n"
FIT = f"    def fit(self):\n        for epoch in range(3):\n{PASS_OF_CLASS}                step(x)\n"


def indented(levels):
    return f"{'    ' * levels}{PASS}{'    ' * (levels + 1)}step(x)\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            f"for epoch in range(3):\n    for task in tasks:\n{indented(2)}",
            "loader.sampler.set_epoch(epoch)",
        ),
        (
            f"turns = range(3)\nfor fold in range(3):\n    for turn in turns:\n{indented(2)}",
            "loader.sampler.set_epoch(turn)",
        ),
        (
            "for epoch in range(3):\n    for phase in phases:\n        for x in loaders[phase]:  # here\n"
            "            step(x)\n",
            "loaders[phase].sampler.set_epoch(epoch)",
        ),
        (f"while True:\n{indented(1)}    epoch += 1\n", "loader.sampler.set_epoch(epoch)"),
        (
            f"while steps < 9:\n{indented(1)}",
            "epoch = 0\n    loader.sampler.set_epoch(epoch)\n    epoch += 1",
        ),
        (
            f"def fit(loader):\n    for task in tasks:\n{indented(2)}for e in range(3):\n    fit(train_loader)\n",
            "train_loader.sampler.set_epoch(e)",
        ),
    ],
)
def test_the_loop_that_counts_epochs_tells_its_number(text, lines, tmp_path):
    assert added("set_epoch", text, tmp_path) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "def forever(loader):\n    epoch = 0\n    while True:\n        yield from loader  # here\n"
            "        epoch += 1\n",
            "loader.sampler.set_epoch(epoch)",
        ),
        (
            "loader = DataLoader(data, batch_sampler=sampler)\nfor epoch in range(3):\n    for x in loader:  # here\n"
            "        step(x)\n",
            "sampler.set_epoch(epoch)",
        ),
        (
            "loader = DataLoader(data, batch_sampler=Buckets(data))\nfor epoch in range(3):\n"
            "    for x in loader:  # here\n        step(x)\n",
            "loader.batch_sampler.set_epoch(epoch)",
        ),
        (
            f"{IN_CLASS}        self.loader = DataLoader(data, sampler=self.sampler)\n{FIT}",
            "self.sampler.set_epoch(epoch)",
        ),
        (
            f"{IN_CLASS}        sampler = self.sampler\n        self.loader = DataLoader(data, sampler=sampler)\n{FIT}",
            "self.loader.sampler.set_epoch(epoch)",
        ),
    ],
)
def test_what_is_told_its_epoch(text, lines, tmp_path):
    assert added("set_epoch", text, tmp_path) == lines


def test_a_call_that_tells_a_constant_is_replaced(tmp_path):
    text = f"{IN_CLASS}        self.loader = DataLoader(data, sampler=self.sampler)\n{FIT}"
    constant = text.replace(PASS_OF_CLASS, f"            self.sampler.set_epoch(self.first)\n{PASS_OF_CLASS}")
    assert patched("set_epoch", constant, tmp_path) == patched("set_epoch", text, tmp_path)


def test_a_call_to_another_sampler_stays(tmp_path):
    text = f"{IN_CLASS}        self.loader = DataLoader(data, sampler=self.sampler)\n{FIT}"
    other = text.replace(PASS_OF_CLASS, f"            self.held_out.set_epoch(0)\n{PASS_OF_CLASS}")
    assert "            self.held_out.set_epoch(0)\n" in patched("set_epoch", other, tmp_path)


def test_a_generator_of_epochs_replaces_cycle(tmp_path):
    (tmp_path / "train.py").write_text(CYCLED)
    project = Project(tmp_path)
    patches()["set_epoch"].apply(Case(finding_at(CYCLED), Trace(()), project))
    ((_, after),) = project.after(project.take()).items()
    assert after.decode() == ENDLESS


CYCLED = """\
from itertools import cycle

import torch


@torch.no_grad()
def evaluate(loader):
    return sum(x.sum() for x in loader)


def train(loader):
    batches = cycle(loader)  # here
    for _ in range(9):
        step(next(batches))
"""
ENDLESS = """\
from itertools import count

import torch


def endless(loader):
    for epoch in count():
        loader.sampler.set_epoch(epoch)
        yield from loader


@torch.no_grad()
def evaluate(loader):
    return sum(x.sum() for x in loader)


def train(loader):
    batches = endless(loader)  # here
    for _ in range(9):
        step(next(batches))
"""


def test_a_loop_over_other_things_counts_no_epochs(tmp_path):
    with pytest.raises(CannotPatch, match="no loop over epochs is found around line 2"):
        added("set_epoch", f"for task in tasks:\n{indented(1)}", tmp_path)


def test_a_group_made_in_a_multi_line_return_is_not_optional(tmp_path):
    text = (
        f"{HEAD}def make(data):\n    return DataLoader(\n        data,\n        sampler=DistributedSampler(data),\n"
        f"    )\nloader = make(data)\nfor epoch in range(3):\n{indented(1)}"
    )
    assert added("set_epoch", text, tmp_path) == "loader.sampler.set_epoch(epoch)"


OWN = """\
import argparse
from torch.utils.data import DataLoader
args = argparse.ArgumentParser().parse_args()
for batch in DataLoader(data):
    bitmap = mAP = batch.mean().item()
"""


@pytest.mark.parametrize(
    ("condition", "adds_barrier"),
    [
        ("mAP > top", False),
        ("bitmap", False),
        ("args.mAP", True),
        ("args.loss > 1", True),
        ("parameter", False),
    ],
)
def test_a_barrier_stands_where_all_ranks_come(condition, adds_barrier, tmp_path):
    text = f"{HEAD}{OWN}if {condition}:\n    torch.save(1, 'a.pt')  # here\n"
    assert ("dist.barrier()" in added("write_on_rank_0", text, tmp_path)) is adds_barrier

"""Whether some ranks alone come to a line: by what they did, whatever the script calls a rank; else by its text."""

import textwrap
from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.lines import guarded_call, is_for_some_ranks
from tests.recorder.scripts import recordings, run

SCRIPT = """
import torch.distributed as dist
from settings import who
me, lora_rank, use_master_weights = dist.get_rank(), 4, True
is_boss = who(me)

def lead():
    return who(me)

def reduced():
    print("called")  # only by a call

def shown():
    if is_boss:
        print("shown")  # in a function
    print("all")  # below it

def odd(step):
    if step == 1 and me == 1:
        print("odd")  # once

def train():
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.ones(2, 2)).mean().backward()
        optimizer.step()
        if me == 0:
            print(1)  # me
        if lead():
            reduced()  # lead
        if lora_rank > 2:
            print(2)  # lora_rank
        if use_master_weights and step % 2:
            print(3)  # master
        if me != 0:
            continue
        print(4)  # behind
        shown()

train()
for step in range(2):
    odd(step)
"""
SETTINGS = "def who(rank):\n    return {0: True}.get(rank, False)\n"


def _at(script: Path, comment: str) -> Where:
    lines = script.read_text().splitlines()
    return Where(str(script), next(n for n, line in enumerate(lines, 1) if f"# {comment}" in line), "f")


@pytest.mark.slow
def test_what_ranks_did_tells_which_lines_are_for_some(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(SETTINGS)
    known = dict(enumerate(recordings(run(tmp_path, SCRIPT, nproc=3))))
    script = tmp_path / "train.py"
    for_some = ("me", "lead", "behind", "in a function", "only by a call", "below it")
    for comment in for_some:
        assert is_for_some_ranks(_at(script, comment), known), comment
    for comment in ("lora_rank", "master"):
        assert not is_for_some_ranks(_at(script, comment), known), comment
    lead = guarded_call(_at(script, "only by a call"), known)
    assert lead is not None
    assert lead.line == _at(script, "lead").line
    assert guarded_call(_at(script, "in a function"), known) is None


HELPERS = """
import torch.distributed as dist
rank = dist.get_rank()

def reduced(value):
    dist.all_reduce(value)  # collective
    return value

"""


@pytest.mark.parametrize(
    ("calls", "leads"),
    [
        ("if rank == 0:\n    print(reduced(1))  # leads", True),
        ("def end():\n    if rank != 0:\n        return\n    reduced(1)  # leads\nend()", True),
        ("me = dist.get_rank()\nif not me:\n    reduced(1)  # leads", True),
        ("lora_rank = 4\nif lora_rank:\n    reduced(1)", False),
        ("is_main_part = True\nif is_main_part:\n    reduced(1)", False),
        ("reduced(1)", False),
        ("if rank == 0:\n    reduced(1)\nif rank == 0:\n    reduced(2)", False),
    ],
)
def test_the_call_that_some_ranks_make_by_the_text_alone(calls: str, leads: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HELPERS + textwrap.dedent(calls))
    found = guarded_call(_at(script, "collective"), {})
    assert (found.line if found else None) == (_at(script, "leads").line if leads else None)


def test_no_line_is_no_call(tmp_path: Path) -> None:
    assert guarded_call(None, {}) is None
    assert guarded_call(Where(str(tmp_path / "absent.py"), 3), {}) is None

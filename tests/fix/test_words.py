"""Fixes in the words of the script: its variables, its line, its indentation."""

import textwrap

import pytest

from ddpdoctor.fix.propose import in_own_words
from ddpdoctor.model import Finding, Level, Where
from ddpdoctor.trace import Trace

GENERAL = "sampler.set_epoch(epoch)"
TRAINER = """\
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler


    class Trainer:
        def __init__(self, data):
            self.train_loader = DataLoader(data, sampler=DistributedSampler(data))

        def fit(self):
            for turn in range(3):
                for batch in self.train_loader:
                    self.step(batch)
                torch.save(self.state(), "last.pt")
"""


def fix_of(text, code, line, folder, as_it_ran=True):
    (folder / "train.py").write_text(textwrap.dedent(text))
    finding = Finding(code, Level.FAIL, "", "", GENERAL, where=Where("train.py", line))
    (told,) = in_own_words([finding], Trace(()), folder, lambda _: as_it_ran)
    return told.fix


@pytest.mark.parametrize(
    ("code", "line", "fix"),
    [
        ("DD103", 12, "self.train_loader.sampler.set_epoch(turn)    # before line 12"),
        (
            "DD402",
            14,
            'if dist.get_rank() == 0:    # in place of line 14\n    torch.save(self.state(), "last.pt")\n'
            "dist.barrier()",
        ),
        ("DD601", 13, GENERAL),
    ],
)
def test_the_lines_of_the_patch_are_the_fix(code, line, fix, tmp_path):
    assert fix_of(TRAINER, code, line, tmp_path) == fix


def test_a_patch_that_leaves_a_choice_does_not_replace_the_fix(tmp_path):
    text = "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(net)\n"
    assert fix_of(text, "DD204", 2, tmp_path) == GENERAL


def test_a_script_that_changed_since_it_ran_keeps_the_general_fix(tmp_path):
    assert fix_of(TRAINER, "DD103", 12, tmp_path, as_it_ran=False) == GENERAL


def test_a_barrier_is_in_no_fix_of_what_a_rank_decides_alone(tmp_path):
    text = """\
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader
    dist.init_process_group("gloo")
    for batch in DataLoader(data):
        loss = model(batch).mean()
        if loss < 1:
            torch.save(model.state_dict(), "best.pt")
    """
    fix = fix_of(text, "DD402", 8, tmp_path)
    assert fix.startswith("if dist.get_rank() == 0:    # in place of line 8\n")
    assert "barrier" not in fix

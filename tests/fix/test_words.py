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


def fix_of(text, code, line, folder, as_it_ran=True, general=GENERAL):
    (folder / "train.py").write_text(textwrap.dedent(text))
    finding = Finding(code, Level.FAIL, "", "", general, where=Where("train.py", line))
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
        ("DD601", 13, "sampler.set_epoch(turn)"),
    ],
)
def test_the_lines_of_the_patch_are_the_fix(code, line, fix, tmp_path):
    assert fix_of(TRAINER, code, line, tmp_path) == fix


GENERAL_LINES = """\
Call the loader's sampler, or model:
    for batch in loader:        # of this rank
        loss = model(batch)
        optimizer.zero_grad(model=model)
        if rank == 0:
            dist.barrier()
    Net(scheduler)"""


@pytest.mark.parametrize(
    ("names", "line", "fix"),
    [
        (
            ("td", "batches", "net", "opt", "me"),
            17,
            "Call the loader's sampler, or model:\n"
            "    for batch in batches:        # of this rank\n"
            "        value = net(batch)\n"
            "        opt.zero_grad(model=net)\n"
            "        if me == 0:\n"
            "            td.barrier()\n"
            "    Net(scheduler)",
        ),
        (("dist", "loader", "model", "optimizer", "rank"), 17, GENERAL_LINES.replace("loss =", "value =")),
        # Nothing is made yet; what the script has later has no name here.
        (
            ("td", "batches", "net", "opt", "me"),
            7,
            GENERAL_LINES.replace("dist.", "td.").replace("rank ==", "td.get_rank() =="),
        ),
    ],
)
def test_general_lines_have_the_names_of_the_script(names, line, fix, tmp_path):
    dist, loader, model, optimizer, rank = names
    text = f"""\
import torch
import torch.distributed as {dist}
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

def main(data):
    {dist}.init_process_group("gloo")
    {rank} = {dist}.get_rank()
    {loader} = DataLoader(data)
    {model} = DistributedDataParallel(torch.nn.Linear(1, 1))
    {optimizer} = torch.optim.SGD({model}.parameters())
    fit({loader}, {model}, {optimizer}, {rank})

def fit({loader}, {model}, {optimizer}, {rank}):
    for x, y in {loader}:
        value = {model}(x).sum()
        value.backward()

main([])
"""
    assert fix_of(text, "DD601", line, tmp_path, general=GENERAL_LINES) == fix


def test_a_patch_that_leaves_a_choice_does_not_replace_the_fix(tmp_path):
    text = "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(net)\n"
    assert fix_of(text, "DD204", 2, tmp_path) == GENERAL


def test_a_script_that_changed_since_it_ran_keeps_the_general_fix(tmp_path):
    assert fix_of(TRAINER, "DD103", 12, tmp_path, as_it_ran=False) == GENERAL


@pytest.mark.parametrize(
    ("code", "text", "line", "fix"),
    [
        (
            "DD218",
            """\
            import torch
            for step, (x, y) in enumerate(loader):
                loss(model(x), y).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if step % 4 == 3:
                    optimizer.step()
            """,
            4,
            "# delete line 4\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)    # before line 6",
        ),
        (
            "DD105",
            """\
            from torch.utils.data import DistributedSampler
            sampler = DistributedSampler(
                data, num_replicas=4, rank=0,
            )
            """,
            2,
            "sampler = DistributedSampler(    # in place of lines 2-4\n    data,\n)",
        ),
        (
            "DD303",
            """\
            import torch.distributed as dist
            for step in range(9):
                if dist.get_rank() == 0 and step == 4:
                    dist.all_reduce(loss)
            """,
            4,
            "if step == 4:    # in place of line 3",
        ),
        (
            "DD303",
            """\
            import torch.distributed as dist
            rank = dist.get_rank()
            for step in range(9):
                if rank == 0 and step % 5 == 4:
                    print(step)
                    dist.barrier()
            """,
            6,
            "if step % 5 == 4:    # in place of line 6, indented by 4\n    dist.barrier()",
        ),
        (
            "DD226",
            """\
            import torch.distributed as dist
            if dist.get_rank() == 0:
                print("averaged")
                ema.update(model)
            """,
            4,
            "ema.update(model)    # in place of line 4, indented by 0",
        ),
    ],
)
def test_a_change_reads_as_python(code, text, line, fix, tmp_path):
    assert fix_of(text, code, line, tmp_path) == fix


@pytest.mark.parametrize(
    ("behind", "has_one"),
    [
        ("dist.barrier()", False),
        ("dist.barrier(group)", False),
        ("torch.load('last.pt')\ndist.barrier()", True),
        ("if dist.get_rank() == 0:\n    dist.barrier()", True),
    ],
)
def test_a_barrier_that_is_there_is_not_added_again(behind, has_one, tmp_path):
    text = f"import torch\nimport torch.distributed as dist\ntorch.save(model, 'last.pt')\n{behind}\n"
    assert ("barrier" in fix_of(text, "DD402", 3, tmp_path)) is has_one


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

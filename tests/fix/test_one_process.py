"""A script that also runs as a single process, without a process group, still does with a patch."""

import re
import textwrap

import pytest

from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.edits import unified_diff
from ddpdoctor.fix.patches import patches
from ddpdoctor.trace import Trace
from tests.fix.cases import finding_at

HEAD = "import os\nimport torch\nimport torch.distributed as dist\n"
SETUP = HEAD + "if args.distributed:\n    dist.init_process_group('nccl')\n"


NOTHING = Trace(())


def added(patch, text, folder, recorded=NOTHING):
    """The lines that a patch adds to a script, whose finding is at the line that ends in ``# here``."""
    (folder / "train.py").write_text(text)
    project = Project(folder)
    patches()[patch].apply(Case(finding_at(text), recorded, project))
    ((_, after),) = project.after(project.take()).items()
    lines = unified_diff("train.py", text, after.decode()).splitlines()
    return textwrap.dedent("\n".join(line[1:] for line in lines if re.match(r"\+(?!\+\+ )", line)))


@pytest.mark.parametrize(
    ("patch", "text", "lines"),
    [
        (
            "set_epoch",
            "sampler = DistributedSampler(data) if args.distributed else None\n"
            "loader = DataLoader(data, sampler=sampler)\n"
            "for epoch in range(2):\n    for x in loader:  # here\n        step(x)\n",
            "if dist.is_initialized():\n    sampler.set_epoch(epoch)",
        ),
        (
            "set_epoch",
            "if args.distributed:\n    sampler = DistributedSampler(data)\n"
            "loader = DataLoader(data, sampler=sampler)\n"
            "for epoch in range(2):\n    for x in loader:  # here\n        step(x)\n",
            "if args.distributed:\n    sampler.set_epoch(epoch)",
        ),
        (
            "distributed_sampler",
            "loader = DataLoader(data, shuffle=True)  # here\n",
            "from torch.utils.data import DistributedSampler\n"
            "sampler = DistributedSampler(data) if dist.is_initialized() else None\n"
            "loader = DataLoader(data, sampler=sampler, shuffle=sampler is None)  # here",
        ),
        (
            "distributed_sampler",
            "loader = DataLoader(data, shuffle=train)  # here\n",
            "from torch.utils.data import DistributedSampler\n"
            "sampler = DistributedSampler(data) if train and dist.is_initialized() else None\n"
            "loader = DataLoader(data, sampler=sampler, shuffle=train and sampler is None)  # here",
        ),
        (
            "write_on_rank_0",
            "torch.save(state, 'last.pt')  # here\n",
            "if not dist.is_initialized() or dist.get_rank() == 0:\n    torch.save(state, 'last.pt')  # here\n"
            "if dist.is_initialized():\n    dist.barrier()",
        ),
        (
            "write_on_rank_0",
            "def first():\n    return not dist.is_initialized() or dist.get_rank() == 0\n"
            "if first():\n    print(1)\ntorch.save(state, 'last.pt')  # here\n",
            "if first():\n    torch.save(state, 'last.pt')  # here\n"
            "if dist.is_initialized():\n    dist.barrier()",
        ),
        (
            "write_on_rank_0",
            "def number():\n    return dist.get_rank() if dist.is_initialized() else 0\n"
            "print(number())\ntorch.save(state, 'last.pt')  # here\n",
            "if number() == 0:\n    torch.save(state, 'last.pt')  # here\n"
            "if dist.is_initialized():\n    dist.barrier()",
        ),
        (
            "write_on_each_host",
            "json.dump(names, file)  # here\n",
            'if os.environ.get("LOCAL_RANK", "0") == "0":\n    json.dump(names, file)  # here\n'
            "if dist.is_initialized():\n    dist.barrier()",
        ),
        (
            "write_on_each_host",
            "if is_best:\n    shutil.copyfile('last.pt', 'best.pt')  # here\n",
            "    if not dist.is_initialized() or dist.get_rank() == 0:\n"
            "        shutil.copyfile('last.pt', 'best.pt')  # here",
        ),
        (
            "reduced_metric",
            "device = torch.device('cuda')\nscheduler.step(loss)  # here\n",
            "metric = loss\nif dist.is_initialized():\n"
            "    metric_mean = torch.tensor(float(metric), device=device)\n"
            "    dist.all_reduce(metric_mean)\n"
            "    metric = metric_mean.item() / dist.get_world_size()\nscheduler.step(metric)  # here",
        ),
        (
            "module_state",
            "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(net)\n"
            "torch.save(model.state_dict(), path)  # here\n",
            "torch.save((model.module if dist.is_initialized() else model).state_dict(), path)  # here",
        ),
        (
            "no_sync",
            "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(net)\n"
            "for i, x in enumerate(loader):\n    loss = model(x)\n"
            "    loss.backward()  # here\n    if i % 4 == 3:\n        optimizer.step()\n",
            "from contextlib import nullcontext\n"
            "    with nullcontext() if not dist.is_initialized() or i % 4 == 3 else model.no_sync():\n"
            "        loss = model(x)\n        loss.backward()  # here",
        ),
        (
            "gpu_of_rank",
            "torch.cuda.set_device(0)  # here\n",
            "torch.cuda.set_device(int(os.environ.get('LOCAL_RANK', 0)))  # here".replace("'", '"'),
        ),
    ],
)
def test_what_needs_a_group_is_under_a_condition(patch, text, lines, tmp_path):
    assert added(patch, SETUP + text, tmp_path) == textwrap.dedent(lines)


@pytest.mark.parametrize(
    ("text", "may_lack"),
    [
        ("dist.init_process_group('gloo')\n", False),
        ("if __name__ == '__main__':\n    dist.init_process_group('gloo')\n", False),
        ("if gpu:\n    dist.init_process_group('nccl')\nelse:\n    dist.init_process_group('gloo')\n", False),
        ("if world_size > 1:\n    dist.init_process_group('gloo')\n", True),
        ("def setup():\n    dist.init_process_group('gloo')\nif args.distributed:\n    setup()\n", True),
        ("def setup():\n    dist.init_process_group('gloo')\nsetup()\n", False),
        ("def setup():\n    if not ranks:\n        return\n    dist.init_process_group('gloo')\n", True),
    ],
)
def test_whether_a_single_process_has_a_group(text, may_lack, tmp_path):
    script = HEAD + text + "torch.save(1, 'last.pt')  # here\n"
    assert ("is_initialized" in added("write_on_rank_0", script, tmp_path)) is may_lack


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("dist.get_rank()", "self.rank == 0"),
        ("int(os.environ['RANK'])", "self.rank == 0"),
        ("int(os.environ.get('RANK', 0))", "self.rank == 0"),
        ("int(os.getenv('RANK', '0'))", "self.rank == 0"),
        ("int(os.environ['LOCAL_RANK'])", "dist.get_rank() == 0"),
    ],
)
def test_a_class_has_its_own_name_for_the_rank(value, read, tmp_path):
    text = (
        f"{HEAD}class Trainer:\n    def __init__(self):\n        self.rank = {value}\n\n"
        "    def save(self):\n        torch.save(1, 'a.pt')  # here\n"
    )
    assert f"if {read}:" in added("write_on_rank_0", text, tmp_path)


def test_the_group_of_another_file_counts(tmp_path):
    (tmp_path / "utils.py").write_text(SETUP)
    assert "is_initialized" in added(
        "write_on_rank_0", HEAD + "import utils\ntorch.save(1, 'a.pt')  # here\n", tmp_path
    )


EVALUATE = """\
from torch.utils.data import DataLoader
def evaluate(model, best=9):
    for x in DataLoader(data):
        result = model(x).mean()
    return result, result / 2
best = 9
"""


@pytest.mark.parametrize(
    "condition",
    ["if rank == 0 and loss < best:  # here\n    ", "if rank == 0:\n    if loss < best:  # here\n        "],
)
def test_the_number_that_chooses_the_best_is_reduced(tmp_path, condition):
    text = f"{HEAD}{EVALUATE}rank = dist.get_rank()\nloss, acc = evaluate(model)\n{condition}save(acc)\n"
    lines = added("reduced_metric", text, tmp_path).split("\n")
    assert [line for line in lines if "all_reduce" in line] == ["dist.all_reduce(loss_mean)"]


def test_all_printed_numbers_are_reduced(tmp_path):
    text = (
        f"{HEAD}{EVALUATE}rank = dist.get_rank()\nloss, acc = evaluate(model)\nloader = 1\n"
        "if rank == 0:\n    print(loss, acc, len(loader))  # here\n"
    )
    lines = added("reduced_metric", text, tmp_path).split("\n")
    assert [line for line in lines if "all_reduce" in line] == [
        "dist.all_reduce(loss_mean)",
        "dist.all_reduce(acc_mean)",
    ]


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("gpu = torch.device('cuda', 1)\n", ", device=gpu"),
        ("x = x.to(args.device)\n", ", device=args.device"),
        ("torch.cuda.set_device(local_rank)\n", ', device="cuda"'),
        ("dist.init_process_group('gloo')\n", ""),
    ],
)
def test_ranks_reduce_numbers_on_their_device(text, device, tmp_path):
    script = f"{HEAD}{text}for x in y:\n    if loss < 1:  # here\n        break\n"
    assert f"decision = torch.tensor(float(loss < 1){device})" in added("agree", script, tmp_path)

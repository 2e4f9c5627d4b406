"""Lines of the script that bring about what is noticed elsewhere."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.source_causes import (
    guarded_collective,
    guarded_update,
    hyperparameter_set,
    part_assigned,
    sync_decision,
    unfreezing,
)

WARM_UP = """\
def set_lr(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr  # here
    state["lr_scale"] = 1
"""
HEAD = """\
class Net(nn.Module):
    def __init__(self):
        self.head = nn.Linear(4, 2)

model = DDP(Net())
model.module.head = nn.Linear(4, 3)  # here
"""
ADAPTER = """\
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
setattr(model.module, "head", Adapter())  # here
"""
NORM = """\
model = DDP(net)
for layer in model.modules():
    if isinstance(layer, nn.Linear):
        weight_norm(layer)  # here
"""
AVERAGE = """\
me = dist.get_rank(); model = DDP(nn.Linear(4, 4))

class Kept:
    def __init__(self, of):
        self.held = copy.deepcopy(of)

    def update(self, of):
        for a, b in zip(self.held.parameters(), of.parameters()):
            a.lerp_(b, 0.1)

class Meter:
    total = 0

    def update(self, model_loss):
        self.total.mul_(0.9).add_(model_loss)

average, meter = Kept(model.module), Meter()
for batch in loader:
    train(batch)
    if me == 0:
        bar.update(1)
        meter.update(model(batch))
        average.update(model.module)  # here
"""
AVERAGE_OF_ALL = """\
import torch.distributed as dist; me = dist.get_rank()
for batch in loader:
    ema.update(model.module)
    if me == 0:
        bar.update(1)
"""
TERNARY = """\
def train():
    for i, batch in enumerate(loader):
        with nullcontext() if i % 4 == 0 else model.no_sync():  # here
            loss = model(batch)
            loss.backward()  # backward
"""
VARIABLE = """\
for i, batch in enumerate(loader):
    last = i % 4 == 0  # here
    with nullcontext() if last else model.no_sync():
        model(batch).backward()  # backward
"""
HELPER = """\
def context(model, step):
    final = step % 4 == 0  # here
    if final:
        return nullcontext()
    return model.no_sync()

def train():
    with context(model, step):
        model(batch).backward()  # backward
"""
AUTOCAST = """\
for i, batch in enumerate(loader):
    last = i % 4 == 0  # here
    with torch.autocast("cuda"), nullcontext() if last else model.no_sync():
        model(batch).backward()  # backward
"""
AUTOCAST_OF_THE_FORWARD = """\
def generator_step():
    first = step == 0  # here
    with torch.autocast("cuda"), G.no_sync() if first else nullcontext():
        loss = D(G(noise))
    loss.backward()  # backward
"""
FORWARD_ALONE = """\
def generator_step():
    with G.no_sync():  # here
        loss = D(G(noise))
    loss.backward()  # backward
"""
FLAG = """\
model.require_backward_grad_sync = False
for i, batch in enumerate(loader):
    model.require_backward_grad_sync = i % 4 == 0  # here
    model(batch).backward()  # backward
"""


IMPORTS = (
    "import copy, torch; import torch.distributed as dist; from torch import nn; "
    "from torch.nn.utils import weight_norm; from torch.nn.parallel import DistributedDataParallel as DDP; "
    "from torch.optim.lr_scheduler import LambdaLR, StepLR; from torch.optim.swa_utils import AveragedModel; "
    "from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict\n"
)


def read(folder: Path, script: str) -> str:
    (folder / "train.py").write_text(IMPORTS + script)
    return str(folder / "train.py")


def line_of(script: str, comment: str) -> int:
    return next(number for number, line in enumerate(script.splitlines(), 2) if f"# {comment}" in line)


def test_the_line_that_sets_a_hyperparameter(tmp_path):
    line = hyperparameter_set(read(tmp_path, WARM_UP), "lr")
    assert line == Where(str(tmp_path / "train.py"), 4, "set_lr")


def test_of_two_lines_that_set_it_none_is_named(tmp_path):
    assert hyperparameter_set(read(tmp_path, WARM_UP + 'optimizer.param_groups[0]["lr"] = 0\n'), "lr") is None


@pytest.mark.parametrize("base", ["g", "optimizer.param_groups[0]"])
def test_the_line_that_sets_a_hyperparameter_of_a_group(tmp_path, base):
    script = f'config["lr"] = 1\nfor i, g in enumerate(optimizer.param_groups):\n    {base}["lr"] = lr\n'
    assert hyperparameter_set(read(tmp_path, script), "lr") == Where(
        str(tmp_path / "train.py"), 4, "<module>"
    )


@pytest.mark.parametrize(
    "script",
    [
        "def drive(self):\n    for group in self.optimizer.param_groups:\n        group['lr'] *= 0.5  # here\n",
        "warmup = len(shard)\nscheduler = LambdaLR(optimizer, lambda step: step / warmup)  # here\n",
    ],
    ids=["multiplied", "a schedule"],
)
def test_the_line_that_changes_the_rate(tmp_path, script):
    line = hyperparameter_set(read(tmp_path, script), "lr")
    assert line is not None
    assert line.line == line_of(script, "here")


def test_a_schedule_beside_a_line_that_sets_the_rate_is_not_named(tmp_path):
    script = WARM_UP + 'optimizer.param_groups[0]["lr"] = 0\nscheduler = StepLR(optimizer, 1)\n'
    assert hyperparameter_set(read(tmp_path, script), "lr") is None


def test_a_group_of_something_else_has_no_hyperparameter(tmp_path):
    script = 'groups = [{"lr": 1}]\nfor param_group in groups:\n    param_group["lr"] = 2\n'
    assert hyperparameter_set(read(tmp_path, script), "lr") is None


def test_a_setting_is_no_hyperparameter_of_a_group(tmp_path):
    assert hyperparameter_set(read(tmp_path, 'config["lr"] = 0.1\n'), "lr") is None


@pytest.mark.parametrize("script", [HEAD, ADAPTER], ids=["an attribute", "setattr"])
def test_the_line_that_gives_a_wrapped_module_a_part(tmp_path, script):
    line = part_assigned(read(tmp_path, script), ["head.weight", "head.bias"])
    assert line is not None
    assert line.line == line_of(script, "here")


def test_the_line_that_parametrizes_the_layers_of_a_wrapped_module(tmp_path):
    line = part_assigned(read(tmp_path, NORM), ["0.parametrizations.weight.original0"])
    assert line is not None
    assert line.line == line_of(NORM, "here")


@pytest.mark.parametrize(
    "script", ["args.head = build()\n", "self.cfg.head = 3\n", "sample.weight = torch.ones(3)\n"]
)
def test_what_has_the_name_of_a_part_is_none(tmp_path, script):
    assert part_assigned(read(tmp_path, script), ["head.weight", "head.bias"]) is None


@pytest.mark.parametrize(
    "script",
    ["model.module.scale = nn.Parameter(ones)\n", 'model.module.register_parameter("scale", scale)\n'],
)
def test_the_line_that_gives_a_wrapped_module_a_parameter(tmp_path, script):
    assert part_assigned(read(tmp_path, script), ["scale"]) == Where(
        str(tmp_path / "train.py"), 2, "<module>"
    )


def test_the_line_that_unfreezes(tmp_path):
    script = "net.requires_grad_(False)\nfor p in net.parameters():\n    p.requires_grad = True\n"
    assert unfreezing(read(tmp_path, script)) == Where(str(tmp_path / "train.py"), 4, "<module>")


def test_the_update_of_an_average_on_some_ranks(tmp_path):
    line = guarded_update(read(tmp_path, AVERAGE), {})
    assert line is not None
    assert line.line == line_of(AVERAGE, "here")


SAVE = """\
me = dist.get_rank(); state = get_state_dict(model)
if me == 0:
    print(len(state))
"""


def test_what_gathers_from_all_ranks_is_called_on_one(tmp_path):
    script = SAVE.replace("print(", "weights = get_model_state_dict(model)\n    print(")
    line = guarded_collective(read(tmp_path, script), {})
    assert line == Where(str(tmp_path / "train.py"), 4, "<module>")


@pytest.mark.parametrize(
    ("head", "call", "is_collective"),
    [
        ("import functools", "functools.reduce(add, losses)", False),
        ("from functools import reduce", "reduce(add, losses)", False),
        ("import torch", "logits.gather(1, labels)", False),
        ("import torch.distributed as dist", "dist.reduce(loss, 0)", True),
        ("import torch", "torch.distributed.gather(loss, parts)", True),
        ("from torch.distributed import scatter", "scatter(part, parts)", True),
        ("import accelerate; mine = accelerate.Accelerator()", "mine.gather(loss)", True),
        ("", "gather_barrier_all_reduce(loss)", False),
        ("from torch.distributed import all_reduce as sum_up", "sum_up(loss)", True),
    ],
)
def test_names_of_collectives_that_others_have_too(tmp_path, head, call, is_collective):
    script = f"import torch.distributed as d; me = d.get_rank(); {head}\nif me == 0:\n    {call}\n"
    assert (guarded_collective(read(tmp_path, script), {}) is not None) == is_collective


@pytest.mark.parametrize(
    "update",
    [
        "teacher.update_parameters(student)",
        "for a, p in zip(old, new): a.mul_(0.9).add_(p, alpha=0.1)",
        "torch._foreach_lerp_(old, new, 0.1)",
    ],
)
def test_other_updates_of_an_average_on_some_ranks(tmp_path, update):
    made = "student = nn.Linear(3, 3); teacher = AveragedModel(student); old = list(teacher.parameters()); new = []"
    script = f"me = dist.get_rank(); {made}\nif me == 0:\n    {update}\n"
    assert guarded_update(read(tmp_path, script), {}) == Where(str(tmp_path / "train.py"), 4, "<module>")


@pytest.mark.parametrize("condition", ["lora_rank == 0", "use_master_weights", "is_main_loop"])
def test_a_name_alone_keeps_no_rank_from_a_line(tmp_path, condition):
    script = f"lora_rank, use_master_weights, is_main_loop = 4, True, True\nif {condition}:\n    "
    assert guarded_update(read(tmp_path, script + "ema.update(net)\n"), {}) is None
    assert guarded_collective(read(tmp_path, script + "get_model_state_dict(net)\n"), {}) is None


def test_what_gathers_is_called_on_all(tmp_path):
    assert guarded_collective(read(tmp_path, SAVE), {}) is None


def test_an_update_on_every_rank_is_none(tmp_path):
    assert guarded_update(read(tmp_path, AVERAGE_OF_ALL), {}) is None


@pytest.mark.parametrize(
    "script",
    [TERNARY, VARIABLE, HELPER, AUTOCAST, AUTOCAST_OF_THE_FORWARD, FORWARD_ALONE, FLAG],
    ids=["ternary", "variable", "helper", "autocast", "autocast of the forward", "forward", "flag"],
)
def test_the_line_that_decides_whether_a_backward_averages(tmp_path, script):
    file = read(tmp_path, script)
    line = sync_decision(Where(file, line_of(script, "backward")), file)
    assert line is not None
    assert line.line == line_of(script, "here")


def test_a_backward_under_no_decision(tmp_path):
    assert sync_decision(Where(read(tmp_path, WARM_UP), 3), str(tmp_path / "train.py")) is None

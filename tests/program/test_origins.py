"""Where values come from, whatever the program calls them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Origin, Program

RANK, OWN, CLOCK, RANDOM = Origin.RANK, Origin.OWN_DATA, Origin.CLOCK, Origin.RANDOM
EQUAL, REDUCED, UNKNOWN, FILES = Origin.EQUAL, Origin.REDUCED, Origin.UNKNOWN, Origin.FILES
ENVIRONMENT = Origin.ENVIRONMENT

HEAD = """\
import argparse, os, random, time
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
"""


def program(folder: Path, code: str, **modules: str) -> Program:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
    script = folder / "train.py"
    script.write_text(HEAD + textwrap.dedent(code))
    return Program(str(script))


def kinds(folder: Path, code: str, **modules: str) -> set[Origin]:
    """The origins of what the line ``show(...)`` is given."""
    read = program(folder, code, **modules)
    (line,) = (
        n for n, text in enumerate((folder / "train.py").read_text().splitlines(), 1) if "show(" in text
    )
    return set(shown(read, line).origins.kinds) - {EQUAL}


def shown(read: Program, line: int) -> Expression:
    """What the call of ``show`` or ``print`` at a line is given."""
    calls = read.calls_at(Where(read.script, line))
    return next(call.arguments[0] for call in calls if call.text.startswith(("show(", "print(")))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("show(dist.get_rank())", {RANK}),
        ("import torch.distributed\nshow(torch.distributed.get_rank())", {RANK}),
        ("from torch.distributed import get_rank as which\nshow(which())", {RANK}),
        ("show(os.environ['RANK'])", {RANK}),
        ("show(int(os.environ.get('LOCAL_RANK', 0)) == 0)", {RANK}),
        ("show(int(os.environ.get('RANK', -1)) != -1)", set()),
        ("rank = dist.get_rank()\nshow(1 if rank >= 0 else 2)", set()),
        ("rank = dist.get_rank()\nshow(1 if rank > 0 else 2)", {RANK}),
        ("show(next(iter(DataLoader([1]))) >= 0)", {OWN}),
        ("from os import environ as e, getenv\nshow(getenv('SLURM_PROCID'))", {RANK}),
        ("show(os.environ['WORLD_SIZE'])", set()),
        ("show(os.environ['LR'])", {ENVIRONMENT}),
        ("show(time.time() - 3)", {CLOCK}),
        ("from time import monotonic as now\nbegun = now()\nshow(now() - begun > 60)", {CLOCK}),
        ("from datetime import datetime\nshow(datetime.now().strftime('%H'))", {CLOCK}),
        ("show(random.random())", {RANDOM}),
        ("show(np.random.permutation(10))", {RANDOM}),
        ("show(os.listdir('data'))", {FILES}),
        ("from pathlib import Path\nshow(Path('x').exists())", {FILES}),
        ("show(dist.get_world_size())", set()),
        ("lora_rank = 8\nshow(lora_rank)", set()),
        ("use_master_weights = torch.cuda.is_available()\nshow(use_master_weights)", set()),
        ("rank = 3\nshow(rank == 0)", set()),
        ("show(rank)", {UNKNOWN}),
        ("import lib\nshow(lib.f(3))", {UNKNOWN}),
        ("import lib\nshow(lib.f(dist.get_rank()))", {UNKNOWN, RANK}),
    ],
)
def test_calls_are_resolved_by_import(tmp_path: Path, code: str, expected: set[Origin]) -> None:
    assert kinds(tmp_path, code) == expected


LOADER = "loader = DataLoader(data, sampler=DistributedSampler(data))\nnet = DDP(nn.Linear(2, 2))\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for x, y in loader:\n    show(x)", {OWN}),
        ("for i, (x, y) in enumerate(loader):\n    show(i)", set()),
        ("for i, (x, y) in enumerate(loader):\n    show(y)", {OWN}),
        ("from tqdm import tqdm\nfor x in tqdm(loader, desc='a'):\n    show(net(x))", {OWN}),
        ("for x in loader:\n    loss = net(x).sum()\n    total = loss.item()\n    show(total < 1)", {OWN}),
        ("total = 0\nfor x in loader:\n    total += net(x).sum().item()\nshow(total)", {OWN}),
        ("s = 0\nfor x in loader:\n    s = net(x).sum()\n    dist.all_reduce(s)\n    show(s / 2)", {REDUCED}),
        ("s = 0\nfor x in loader:\n    s = net(x).sum()\ndist.all_reduce(s)\nshow(s / 2)", {REDUCED}),
        ("s = 0\nfor x in loader:\n    s = net(x).sum()\nshow(s / 2)\ndist.all_reduce(s)", {OWN}),
        ("for x in loader:\n    s = net(x).sum()\n    dist.all_reduce(s.clone())\n    show(s)", {OWN}),
        (
            "for x in loader:\n    parts = [None]\n    dist.all_gather_object(parts, x)\n    show(parts[0])",
            {REDUCED},
        ),
        ("x = next(iter(loader))\nshow(x)", {OWN}),
        (
            "def forever(it):\n    while True:\n        for b in it:\n            yield b\n"
            "for z in forever(loader):\n    show(z)",
            {OWN},
        ),
        ("n = 0\nfor x in loader:\n    n += 1\nshow(n)", set()),
        ("device = torch.device('cuda', dist.get_rank())\nfor x in loader:\n    show(x.to(device))", {OWN}),
        (
            "net = DDP(nn.Linear(2, 2).to(dist.get_rank()), device_ids=[dist.get_rank()])\nshow(net(torch.ones(2)))",
            set(),
        ),
        ("seen = []\nfor x in loader:\n    seen.append(x)\nshow(seen)", {OWN}),
        ("state = {}\nfor x in loader:\n    state['loss'] = x\nstate['n'] = 1\nshow(state['n'])", set()),
        ("state = {}\nfor x in loader:\n    state['loss'] = x\nshow(state['loss'])", {OWN}),
    ],
)
def test_values_flow_through_loops_and_changes(tmp_path: Path, code: str, expected: set[Origin]) -> None:
    assert kinds(tmp_path, LOADER + code) == expected


CLASS = """\
class Trainer:
    def __init__(self, net, loader, number):
        self.net, self.loader = net, loader
        self.number = number
        self.best = 0.0

    @property
    def writes(self):
        return self.number == 0

    def first(self):
        return not self.number

    def validate(self):
        total = 0.0
        for x in self.loader:
            total += self.net(x).sum().item()
        return total, len(self.loader)

    def mean(self):
        total, n = self.validate()
        t = torch.tensor([total])
        dist.all_reduce(t)
        return t.item() / n

    def run(self):
        total, n = self.validate()
        self.best = max(self.best, total)
        {}

Trainer(DDP(nn.Linear(2, 2)), DataLoader([1]), dist.get_rank()).run()
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("show(self.number)", {RANK}),
        ("show(self.writes)", {RANK}),
        ("show(self.first())", {RANK}),
        ("show(total)", {OWN}),
        ("show(self.best)", {OWN}),
        ("self.best = 0\n        show(self.best)", set()),
        ("self.best = 0\n        self.run()\n        show(self.best)", {OWN}),
        ("show(self.mean() < self.best)", {OWN, REDUCED}),
    ],
)
def test_values_flow_through_attributes_parameters_and_returns(
    tmp_path: Path, code: str, expected: set[Origin]
) -> None:
    assert kinds(tmp_path, CLASS.format(code)) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def whoami():\n    return dist.get_rank() if dist.is_initialized() else 0\nshow(whoami())", {RANK}),
        (
            "def chief():\n    if dist.get_rank() == 0:\n        return True\n    return False\nshow(chief())",
            {RANK},
        ),
        ("flag = False\nif dist.get_rank() == 0:\n    flag = True\nshow(flag)", {RANK}),
        ("def main(which, size):\n    show(which)\nmp.spawn(main, args=(2,))", {RANK}),
        ("def main(which, size):\n    show(size)\nmain(0, 2)", set()),
        ("def main(n):\n    dist.init_process_group('gloo', rank=n)\n    show(n)", {RANK}),
        (
            "args = argparse.ArgumentParser().parse_args()\nargs.gpu = int(os.environ['LOCAL_RANK'])\n"
            "def main(a):\n    show(a.gpu == 0)\nmain(args)",
            {RANK},
        ),
        ("args = argparse.ArgumentParser().parse_args()\nshow(args.rank)", set()),
        ("def pair():\n    return dist.get_rank(), dist.get_world_size()\na, b = pair()\nshow(b)", set()),
        ("def pair():\n    return dist.get_rank(), dist.get_world_size()\na, b = pair()\nshow(a)", {RANK}),
        ("def info():\n    return {'r': dist.get_rank(), 'n': 2}\nshow(info()['n'])", set()),
        ("def info():\n    return {'r': dist.get_rank(), 'n': 2}\nshow(info()['r'])", {RANK}),
        ("def same(v):\n    return v\nshow(same(3) + 0 * len(same('x')))\nsame(dist.get_rank())", set()),
        ("def sync(t):\n    dist.all_reduce(t)\nt = torch.rand(1)\nsync(t)\nshow(t)", {REDUCED}),
        (
            "def agree(t):\n    t = t.clone()\n    dist.all_reduce(t)\n    return t\nshow(agree(torch.rand(1)))",
            {REDUCED},
        ),
        ("def agree(t):\n    return t.clone()\nshow(agree(torch.rand(1)))", {RANDOM}),
        ("WHO = dist.get_rank()\ndef f():\n    show(WHO)", {RANK}),
        (
            "WHO = None\ndef setup():\n    global WHO\n    WHO = dist.get_rank()\ndef f():\n    show(WHO)",
            {RANK},
        ),
        ("reduce = dist.all_reduce\nt = torch.rand(1)\nreduce(t)\nshow(t)", {REDUCED}),
        (
            "from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\n    b: int = 0\n"
            "c = C(dist.get_rank(), b=3)\nshow(c.a)",
            {RANK},
        ),
        ("f = lambda: dist.get_rank()\nshow(f)", set()),
        ("a = b = dist.get_rank()\nshow(b)", {RANK}),
        ("if (r := dist.get_rank()) == 0:\n    show(r)", {RANK}),
        ("def f(n=dist.get_rank()):\n    show(n)\nf()", {RANK}),
    ],
)
def test_values_flow_through_functions(tmp_path: Path, code: str, expected: set[Origin]) -> None:
    assert kinds(tmp_path, code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from accelerate import Accelerator\na = Accelerator()\nshow(a.is_main_process)", {RANK}),
        ("from accelerate import Accelerator\na = Accelerator()\nshow(a.sync_gradients)", set()),
        ("from accelerate import Accelerator\ndef f(a: Accelerator):\n    show(a.process_index)", {RANK}),
        (
            "from accelerate import Accelerator\na = Accelerator()\n"
            "m, l = a.prepare(nn.Linear(2, 2), DataLoader([1]))\nfor x in l:\n    show(m(x))",
            {OWN},
        ),
        (
            "import lightning.pytorch as pl\nclass M(pl.LightningModule):\n    def f(self):\n"
            "        show(self.trainer.is_global_zero)",
            {RANK},
        ),
        ("import pytorch_lightning as pl\nt = pl.Trainer()\nshow(t.is_global_zero)", {RANK}),
        ("from lightning.fabric import Fabric\nf = Fabric()\nshow(f.global_rank)", {RANK}),
        ("import ignite.distributed as idist\nshow(idist.get_rank())", {RANK}),
        ("import ray.train\nshow(ray.train.get_context().get_world_rank())", {RANK}),
        ("class Accelerator:\n    is_main_process = True\nshow(Accelerator().is_main_process)", set()),
    ],
)
def test_objects_of_frameworks(tmp_path: Path, code: str, expected: set[Origin]) -> None:
    assert kinds(tmp_path, code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "from helpers import first as f\nshow(f())",
        "import helpers\nshow(helpers.first())",
        "from helpers import NUMBER\nshow(NUMBER)",
    ],
)
def test_values_flow_through_the_modules_of_a_program(tmp_path: Path, code: str) -> None:
    helpers = "def first():\n    return dist.get_rank() == 0\nNUMBER = dist.get_rank()\n"
    assert kinds(tmp_path, code, helpers=helpers) == {RANK}


@pytest.mark.parametrize(("called", "expected"), [("", RANDOM), ("torch.distributed.all_reduce", REDUCED)])
def test_what_a_run_called_resolves_what_the_text_does_not(
    tmp_path: Path, called: str, expected: Origin
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom tools import mix\nloss = torch.rand(1)\nmix(loss)\nprint(loss)\n")
    read = Program(str(script), {(str(script), 4): [called]} if called else {})
    assert shown(read, 5).origins.kinds == {expected}


def test_a_source_tells_the_lines_on_the_way(tmp_path: Path) -> None:
    code = "def whoami():\n    return dist.get_rank()\nn = whoami()\nfirst = n == 0\nshow(first)\n"
    read = program(tmp_path, code)
    start = len(HEAD.splitlines())
    source = shown(read, start + 5).origins.of(RANK)
    assert source is not None
    assert source.name == "torch.distributed.get_rank"
    assert [it.line - start for it in source.path if it.line] == [2, 3, 4, 5]


def test_a_file_of_a_thousand_lines_is_read_within_a_second(tmp_path: Path) -> None:
    body = "".join(
        f"    total = total + net(x).sum().item() * {n}\n"
        f"    if total > {n}:\n        total = total / dist.get_world_size()\n"
        for n in range(330)
    )
    read = program(tmp_path, LOADER + "total = 0.0\nfor x in loader:\n" + body + "show(total)\n")
    assert OWN in shown(read, len(Path(read.script).read_text().splitlines())).origins.kinds

"""Scripts in which one rank is slow, each at a line marked ``# slow``, and scripts in which none is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_SCRIPT = """\
import gc
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_num_threads(1)


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, inputs):
        outputs = self.inner(inputs)  # MODEL
        spin({pace} * FORWARD)
        return outputs


{before}


class Samples(Dataset):
    def __len__(self):
        return 4 * {steps} * dist.get_world_size()

    def __getitem__(self, index):
        {loads}
        return torch.full((32,), index / 100), index % 4


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
sampler = DistributedSampler(Samples())
loader = DataLoader(Samples(), batch_size=4, sampler=sampler, num_workers={workers})
for number, (inputs, targets) in enumerate(loader):{loop}
    optimizer.zero_grad()
    {inputs}
    outputs = model(inputs)
    loss = nn.functional.cross_entropy(outputs{mean}, targets)
    loss.backward()
    spin({pace} * (1 - FORWARD))
    {does}
    optimizer.step()
dist.destroy_process_group()
"""
_PASS = "pass"


@dataclass(frozen=True)
class Case:
    """A script, and whether a rank is slow in it."""

    name: str
    text: str
    slow: bool

    @property
    def lines(self) -> set[int]:
        """Where the slow rank is slow, from 1."""
        return {number for number, line in enumerate(self.text.splitlines(), 1) if "# slow" in line}


def _script(pace: float, **parts: object) -> str:
    defaults = {"before": "", "loads": _PASS, "inputs": _PASS, "does": _PASS, "mean": "", "loop": ""}
    text = _SCRIPT.format(**{"steps": 40, "workers": 0, "pace": pace, **defaults, **parts})
    return text.replace("FORWARD", "0.7").replace("  # MODEL", str(parts.get("model", "")))


def stragglers() -> Iterator[Case]:
    """Thirty jobs with a slow rank: 5 ms to 1 s in a step of 5 to 200 ms."""
    for lost, pace in ((0.005, 0.005), (0.005, 0.1), (0.02, 0.02), (0.02, 0.2), (0.2, 0.05), (1.0, 0.2)):
        yield _in_code("sleeps", f"time.sleep({lost})", lost, pace)
    for lost, pace in ((0.005, 0.02), (0.02, 0.1), (0.1, 0.1)):
        yield _in_code("computes", f"sum(i * i for i in range({int(lost * 2e7)}))", lost, pace)
    for lost, pace in ((0.005, 0.01), (0.02, 0.1), (0.08, 0.05), (0.4, 0.2)):
        loads = f"time.sleep({lost / 4} * (dist.get_rank() == 1))  # slow"
        yield Case(f"data, {lost:g} s of {pace:g} s", _script(pace, loads=loads), slow=True)
    for lost, pace in ((0.04, 0.02), (0.2, 0.05)):
        loads = f"time.sleep({lost / 2} * (int(os.environ['RANK']) == 1))"
        text = _script(pace, loads=loads, workers=2, loop="  # slow")
        yield Case(f"data of workers, {lost:g} s of {pace:g} s", text, slow=True)
    for count, pace in ((20, 0.01), (60, 0.05), (300, 0.1)):
        wrote = "log.write(f'{outputs.tolist()} {loss.item()}\\n' * 40); log.flush(); os.fsync(log.fileno())"
        before = "log = open(f'log{os.getpid()}.txt', 'w')\n\n\ndef write(outputs, loss):\n    "
        before += f"for _ in range({count}):\n        {wrote}  # slow"
        text = _script(pace, before=before, does="if rank == 0:\n        write(outputs, loss)")
        yield Case(f"logging, {count} lines in {pace:g} s", text, slow=True)
    for count, pace in ((100_000, 0.02), (400_000, 0.1)):
        before = f"held = [[i] for i in range({count})]"
        text = _script(pace, before=before, does="if rank == 1:\n        gc.collect()  # slow")
        yield Case(f"garbage, {count} objects in {pace:g} s", text, slow=True)
    for lost, pace in ((0.01, 0.02), (0.05, 0.1), (0.3, 0.05)):
        before = "class SlowFiles:\n    def __init__(self, seconds):\n        self.seconds = seconds\n\n"
        before += "    def read(self):\n        time.sleep(self.seconds)  # slow\n        return 1.0\n\n\n"
        before += f"files = SlowFiles({lost})"
        text = _script(pace, before=before, inputs="if rank == 1:\n        inputs = inputs * files.read()")
        yield Case(f"file system, {lost:g} s of {pace:g} s", text, slow=True)
    for lost, pace in ((0.05, 0.01), (0.1, 0.05), (0.5, 0.1), (1.0, 0.2)):
        before = f"def render(outputs):\n    time.sleep({lost})  # slow"
        does = "if rank == 1 and number % 10 == 3:\n        render(outputs)"
        yield Case(
            f"one step in ten, {lost:g} s of {pace:g} s", _script(pace, before=before, does=does), slow=True
        )
    for length, pace in ((4000, 0.01), (6000, 0.02), (12000, 0.05)):
        inputs = f"inputs = inputs[:, None].expand(-1, {length} if rank == 1 else 200, -1)"
        text = _script(pace, inputs=inputs, mean=".mean(1)", model="  # slow")
        yield Case(f"longer samples, {length} in {pace:g} s", text, slow=True)


def _in_code(name: str, work: str, lost: float, pace: float) -> Case:
    before = f"def log(outputs):\n    {work}  # slow"
    does = "if rank == 0:\n        log(outputs)"
    return Case(f"{name}, {lost:g} s of {pace:g} s", _script(pace, before=before, does=does), slow=True)


def balanced() -> Iterator[Case]:
    """Thirty jobs whose ranks do alike: always, on average, or but for what rank 0 does once or quickly."""
    paces = (0.005, 0.01, 0.02, 0.05, 0.1)
    every_rank = "spin(0.3 * {pace})"
    for pace in paces:
        yield Case(f"as it is, {pace:g} s", _script(pace), slow=False)
        yield Case(f"2 workers, {pace:g} s", _script(pace, workers=2, loads=f"spin({pace / 8})"), slow=False)
        once = "if rank == 0 and number in (9, 25):\n        torch.save(model.state_dict(), 'saved.pt')"
        yield Case(f"saves twice, {pace:g} s", _script(pace, does=once), slow=False)
        tells = "if rank == 0:\n        print(number, float(loss))"
        yield Case(f"prints, {pace:g} s", _script(pace, does=tells), slow=False)
        varies = f"spin({pace} * ((number * 7 + rank * 5) % 11) / 11)"
        yield Case(f"work of any size, {pace:g} s", _script(pace, does=varies), slow=False)
        text = _script(pace, does=every_rank.format(pace=pace), inputs="value = [x.item() for x in targets]")
        yield Case(f"more code, {pace:g} s", text, slow=False)

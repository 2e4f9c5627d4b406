"""What the recorder's own code takes of a training step, measured from inside: microseconds, not a difference of runs.

The job is recorded as `ddpdoctor watch` does it. Around each thing that the recorder has patched, and around what it
calls, stands a clock of the thread's CPU time; what lies between the two is the recorder's, once what the
clocks take is left out. So the speed of the machine matters, and what else it does hardly. Steps last ten
milliseconds: code that runs once in that time finds the caches cold, and takes three times as long as in a loop of its
own; patches that do nothing are timed in the same places for comparison. What is left out: the background thread.
Models of several numbers of parameters run one after the other, with ReLU, Dropout, AdamW, clipping and a scheduler.
Run as ``python benchmarks/step_cost.py --steps 1500``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from limits import tell

MODELS = {10: (4, 512), 100: (49, 128), 1000: (499, 16)}
"""About how many parameters: how many hidden layers, and how wide."""
INJECT = Path(__file__).resolve().parents[1] / "ddpdoctor" / "recorder" / "inject"
SCRIPT = """
import os, statistics, sys, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

steps, layers, width, batches = (int(word) for word in sys.argv[1:5])
torch.set_num_threads(1)
dist.init_process_group("gloo")
hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))]
model = DDP(nn.Sequential(*hidden, nn.Linear(width, 10)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
samples = 64 * batches
data = TensorDataset(torch.randn(1, width).expand(samples, width), torch.randint(0, 10, (samples,)))
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
now, spent, clocks, taken_by = time.thread_time_ns, [0], [0], {}


def around(owner, name):
    # The patch calls what it replaced by a variable of its closure.
    patch = getattr(owner, name)
    cell = patch.__closure__[patch.__code__.co_freevars.index("original")]
    original, theirs, own = cell.cell_contents, [0], taken_by.setdefault(name, [0])

    def inner(*args, **kwargs):
        began = now()
        try:
            return original(*args, **kwargs)
        finally:
            theirs[0] += now() - began

    def outer(*args, **kwargs):
        theirs[0], began = 0, now()
        try:
            return patch(*args, **kwargs)
        finally:
            ours = now() - began - theirs[0]
            spent[0] += ours
            own[0] += ours
            clocks[0] += 1

    cell.cell_contents = inner
    setattr(owner, name, outer)


def around_calls():
    # The patches of classes call what these inherit, where they are in place: in few steps.
    own, inner, inherited = taken_by.setdefault("calls of modules", [0]), [0], nn.Module.__call__

    def timed(self, *args):
        began = now()
        result = inherited(self, *args)
        inner[0] = now() - began
        return result

    def from_sequential(self, *args):
        data = args[0]
        for module in self:
            if not hasattr(type(module).__call__, "__ddpdoctor__"):
                data = module(data)
                continue
            inner[0], began = 0, now()
            data = module(data)
            ours = now() - began - inner[0]
            spent[0] += ours
            own[0] += ours
            clocks[0] += 1
        return data

    nn.Module.__call__ = timed
    nn.Sequential.forward = from_sequential


def around_hooks(hooks, name):
    for key, hook in list(hooks.items()):
        def timed(*args, hook=hook, own=taken_by.setdefault(name, [0])):
            began = now()
            hook(*args)
            ours = now() - began
            spent[0] += ours
            own[0] += ours
            clocks[0] += 1
        hooks[key] = timed


class Nothing:
    # What the clocks themselves take, between two steps where the caches are as cold: a patch that does nothing.
    def call(self):
        pass


def pass_through(original):
    def patch(*args, **kwargs):
        return original(*args, **kwargs)

    return patch


Nothing.call = pass_through(Nothing.call)
around(Nothing, "call")
nothing, clock = Nothing(), taken_by.pop("call")

bare = "DDPDOCTOR_RECORD" not in os.environ
iterator = torch.utils.data.dataloader._BaseDataLoaderIter
for owner, name in (
    (iterator, "__next__"), (iterator, "_next_index"), (DDP, "forward"), (F, "cross_entropy"),
    (torch.autograd, "backward"), (type(schedule), "step"), (nn.utils, "clip_grad_norm_"),
):
    if bare:
        setattr(owner, name, pass_through(getattr(owner, name)))
    if bare or hasattr(getattr(owner, name), "__ddpdoctor__"):
        around(owner, name)
around_calls()
hooks = sys.modules["torch.optim.optimizer"]
if bare:
    hooks.register_optimizer_step_pre_hook(lambda *_: None)
    hooks.register_optimizer_step_post_hook(lambda *_: None)
around_hooks(hooks._global_optimizer_pre_hooks, "before the update")
around_hooks(hooks._global_optimizer_post_hooks, "after the update")

costs, walls, empty, epoch = [], [], [], 0
while len(costs) < steps:
    loader.sampler.set_epoch(epoch)
    epoch, began = epoch + 1, now()
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        costs.append((spent[0] / 1e3, clocks[0]))
        walls.append((now() - began) / 1e6)
        for own in taken_by.values():
            own.append(own[0])
            own[0] = 0
        clock[0] = 0
        nothing.call()
        empty.append(clock[0] / 1e3)
        spent[0], clocks[0], began = 0, 0, now()
own_clock = statistics.median(empty)
print(f"  each of them with {own_clock:.1f} us of the clock, which the results leave out")
costs = [cost - count * own_clock for cost, count in costs]
if bare:
    print(f"  patches that do nothing take {statistics.median(costs):.1f} us of a step in the same places: the caches"
          " are cold there")
    dist.destroy_process_group()
    sys.exit()
for name, own in taken_by.items():
    taken = [nanoseconds / 1e3 for nanoseconds in own[1:]]
    print(f"  {name:<18} {statistics.median(taken):6.1f} us in most steps, {statistics.mean(taken):6.1f} on average")
late = sorted(costs[len(costs) // 4 :])
print(f"{len(list(model.parameters()))} parameters, a step of {statistics.median(walls):.1f} ms; with the first quarter"
      f" of the run {statistics.mean(costs):.0f} us a step, without it:")
print("costs", statistics.median(late), statistics.mean(late), late[len(late) * 99 // 100])
dist.destroy_process_group()
"""


def measure(steps: int, model: tuple[int, int], batches: int) -> list[float]:
    """What a step of a model costs, in microseconds: the median, the mean, and what 99 in 100 take at most."""
    print("\n".join(_run(min(steps, 300), model, batches, record=False)))
    *lines, last = _run(steps, model, batches, record=True)
    print("\n".join(lines))
    return [float(word) for word in last.split()[1:]]


def _run(steps: int, model: tuple[int, int], batches: int, *, record: bool) -> list[str]:
    """What the script prints."""
    with tempfile.TemporaryDirectory() as place:
        script, folder = Path(place, "train.py"), Path(place, "record")
        script.write_text(SCRIPT)
        folder.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
        command += [str(script), str(steps), *map(str, model), str(batches)]
        recorder = {
            "DDPDOCTOR_RECORD": str(folder),
            "DDPDOCTOR_FULL": "1",
            "DDPDOCTOR_WATCHED": "1",
            "PYTHONPATH": str(INJECT),
        }
        environ = {**os.environ, **(recorder if record else {}), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        sys.exit(f"the script ended with {done.returncode}:\n{done.stderr}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the recorder's own code in a training step.")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--parameters", type=int, choices=MODELS, action="append")
    parser.add_argument("--batches", type=int, default=50, help="of a pass over the data")
    options = parser.parse_args()
    missed = False
    for parameters in options.parameters or MODELS:
        costs = measure(options.steps, MODELS[parameters], options.batches)
        for name, cost in zip(("step_median", "step_mean", "step_rare"), costs, strict=True):
            missed |= tell(name, cost, of=f"{parameters} parameters")
    sys.exit(missed)


if __name__ == "__main__":
    main()

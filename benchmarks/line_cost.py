"""What it costs to record which lines a training step reaches, in a step that is recorded in full.

One process, a model of 100 modules that the script wrote, steps of about 12 ms. Steps with and without the recorder's
observer take turns, each with the step before it as the neighbour, so the result is the difference of medians. With
torch it runs where torch is: by the trace function on Python 3.10 and 3.11. One that does nothing takes two thirds of
that time, since Python calls it for each of 1,280 functions of torch. Where torch is not installed, as on a bare
Python 3.13, a step of pure Python stands in for it: as many lines and functions of the script, ten times as many
calls in a file of an installed package, and hashing for the rest of the time. So what is measured there is the
monitoring itself, and no torch. Run as ``python benchmarks/line_cost.py --python python3.13``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from limits import tell

ROOT = Path(__file__).resolve().parents[1]
MEASURE = """
import statistics, sys, time
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
try:
    import torch
except ImportError:
    torch = None
from train import make_step
from ddpdoctor.recorder import line_observers
from ddpdoctor.recorder.patches.lines import Lines
from ddpdoctor.recorder.sites import Sites

written = []
session = SimpleNamespace(
    torch=torch or SimpleNamespace(Tensor=type("Tensor", (), {})), sites=Sites("/torch" if torch is None else
    torch.__path__[0]), event=written.append, note=print, steps=0, detailed=True,
    options=SimpleNamespace(full=True, watched=False), in_worker=False, on_undo=lambda _: None,
)
if torch is None:
    line_observers.hide_from_compiler = lambda *_, **__: None
lines = Lines(session)
Observer = line_observers.LineMonitor if sys.version_info >= (3, 12) else line_observers.LineTrace
step, times = make_step(torch), {True: [], False: []}
lines.begin(Observer(lines))


def main():
    for number in range(int(sys.argv[2])):
        session.detailed = number % 2 == 0
        began = time.perf_counter()
        lines.open_step()
        step(number)
        times[session.detailed].append(time.perf_counter() - began)
        session.steps += 1


main()
late = {kind: statistics.median(values[20:]) * 1e3 for kind, values in times.items()}
print(late[True], late[False], len(written))
"""
TRAIN = """
import hashlib

MODULES = 100


def make_step(torch):
    return of_torch(torch) if torch else of_python()


def of_torch(torch):
    torch.set_num_threads(1)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(64, 64)
            self.scale = 0.5

        def forward(self, given):
            hidden = self.linear(given)
            if self.scale > 0:
                hidden = hidden * self.scale
            return given + hidden.relu()

    model = torch.nn.Sequential(*(Block() for _ in range(MODULES // 2)))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(128, 64)

    def step(number):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        if number < 0:
            raise ValueError
        optimizer.step()

    return step


def of_python():
    library = {}
    text = "def call(function, *given):\\n    return function(*given)\\n"
    exec(compile(text, "/site-packages/library.py", "exec"), library)
    call, scale = library["call"], 0.5

    def forward(given):
        hidden = given + 1
        if scale > 0:
            hidden = hidden * 2 % 1000
        for _ in range(10):
            call(abs, hidden)
        return hidden

    block = b"x" * (1 << 20)

    def step(number):
        value = number
        for _ in range(MODULES):
            value = call(forward, value)
        for _ in range(20):
            hashlib.sha256(block)
        if value < 0:
            raise ValueError

    return step
"""


def measure(python: str, steps: int) -> tuple[float, str]:
    """What observing takes of a step, in percent, and of what it was measured."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "measure.py").write_text(MEASURE)
        Path(place, "train.py").write_text(TRAIN)
        command = [python, str(Path(place, "measure.py")), str(ROOT), str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
        if done.returncode:
            sys.exit(f"it ended with {done.returncode}:\n{done.stderr}")
    observed, plain, _ = map(float, done.stdout.split())
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    print(
        f"Python {version}: a step of {plain:.2f} ms, {1000 * (observed - plain):.0f} us more while observed"
    )
    return 100 * (observed / plain - 1), f"Python {version.rpartition('.')[0]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the record of lines in a training step.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--python", action="append", default=[], help="another Python to run it on, too")
    options = parser.parse_args()
    missed = False
    for python in (sys.executable, *options.python):
        share, of = measure(python, options.steps)
        missed |= tell("lines", share, of=of)
    sys.exit(missed)


if __name__ == "__main__":
    main()

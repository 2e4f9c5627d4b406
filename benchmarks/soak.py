"""A long run under `ddpdoctor watch`: what grows in its ranks, in the command and on the disk.

    python benchmarks/soak.py [--steps 1000000] [--hang-at 900000] [--picture docs/soak.png] [--table soak.md]

Two ranks take steps of about 2 ms, with epochs, evaluations (each tenth by a DataLoader worker), checkpoints, output,
restarts by torchrun after a failure and a wall clock that jumps by hours. Watched from outside: memory, open files and
threads of each process, the size of what is recorded, and the rate. The same script runs for a shorter time without the
command, for comparison. With `--hang-at` or `--hang-after` SECONDS, rank 0 waits at a step for a message that rank 1
sends only once the command has reported the hang, and the time to that report is measured; then the job goes on to its
end. With `--fill-disk` (as root) the records lie on a disk of their own that is full once the job trains: it must not
notice.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TextIO, TypeAlias

import psutil
from limits import tell

from ddpdoctor.figures import Lines, Series
from ddpdoctor.picture import draw

Moment: TypeAlias = tuple[float, int, dict[str, tuple[float, ...]]]
"""Seconds, steps, and what was seen of each process."""
WARM_UP = 1000
"""Steps after which nothing is to grow."""
SCRIPT = """
import os, sys, threading, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def send_once_reported():
    with open("reported") as pipe:
        pipe.read()
    dist.send(torch.zeros(1), dst=0)

steps, hang_at, failures = (int(word) for word in sys.argv[1:4])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(16000, 64), torch.randint(0, 10, (16000,)))
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
in_order = DistributedSampler(data, shuffle=False)
held_out = [DataLoader(data, batch_size=400, sampler=in_order, num_workers=workers) for workers in (0, 1)]
taken = epoch = 0
asked = False
if os.path.exists("last.pt"):
    state = torch.load("last.pt")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    taken, epoch = state["taken"], state["epoch"]
clock = time.time
while taken < steps:
    model.train()
    loader.sampler.set_epoch(epoch)
    jump = (0, 3600, -7200)[epoch % 3]
    time.time = lambda: clock() + jump
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        taken += 1
        if (taken == hang_at or asked) and not os.path.exists("hung"):
            asked = False
            dist.barrier()
            if rank == 0:
                open("hung", "w").close()
                print("hangs", time.monotonic(), taken, flush=True)
                dist.recv(torch.zeros(1), src=1)
            else:
                threading.Thread(target=send_once_reported, daemon=True).start()
    epoch += 1
    model.eval()
    correct, wanted = torch.zeros(1), torch.tensor([float(os.path.exists("hang"))])
    with torch.no_grad():
        for inputs, targets in held_out[epoch % 10 == 1]:
            correct += (model.module(inputs).argmax(1) == targets).sum()
    dist.all_reduce(correct)
    dist.broadcast(wanted, 0)
    asked = bool(wanted)
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"taken": taken, "epoch": epoch}
        torch.save(state, "last.tmp")
        os.replace("last.tmp", "last.pt")
        print(f"epoch {epoch}: {correct.item() / len(data):.3f} " + "x" * 200, flush=True)
    dist.barrier()
    if attempt < failures and taken > steps * (attempt + 1) // (failures + 1) and rank == 1:
        sys.exit(3)
dist.destroy_process_group()
"""


def sample(job: psutil.Process, folder: Path) -> dict[str, tuple[float, ...]]:
    """Each process by what it is: bytes of its own, open files, threads; and what is recorded, in bytes."""
    found: dict[str, tuple[float, ...]] = {}
    for process in [job, *job.children(recursive=True)]:
        try:
            with process.oneshot():
                memory, words, environ = process.memory_info(), process.cmdline(), process.environ()
                own = (
                    float(memory.rss - memory.shared),
                    float(process.num_fds()),
                    float(process.num_threads()),
                    float(process.pid),
                )
        except psutil.Error:
            continue
        is_rank = "RANK" in environ and "train.py" in " ".join(words[:3])
        role = "command" if process == job else f"rank {environ['RANK']}" if is_rank else ""
        if role and role not in found:
            found[role] = own
    sizes = dict(_sizes(folder))
    records = [size for file, size in sizes.items() if file.suffix == ".jsonl"]
    found["disk"] = (float(sum(sizes.values())), float(max(records, default=0)), float(len(sizes)))
    return found


def _sizes(folder: Path) -> Iterator[tuple[Path, int]]:
    """What the files below a folder take of the disk, in bytes; processes make and remove some in the meantime."""
    for parent, _, names in os.walk(folder):
        for file in (Path(parent, name) for name in names):
            with suppress(OSError):
                yield file, file.stat().st_blocks * 512


def taken(folder: Path, ranks: set[int]) -> int:
    """Training steps of each rank, in all attempts; DataLoader workers say those of their rank, too."""
    steps = 0
    for file in (it for it, _ in _sizes(folder) if it.suffix == ".now"):
        with suppress(OSError, ValueError, KeyError):
            steps += int(json.loads(file.read_bytes())["steps"]) * (int(file.name.partition("-")[0]) in ranks)
    return steps // 2


class Hang(threading.Thread):
    """Waits for the hang of a job and for the report of it, and then lets the job go on."""

    def __init__(self, place: Path) -> None:
        super().__init__(daemon=True)
        self.began, self.step, self.seconds = math.inf, 0, math.nan
        self._output, self._pipe = place / "output", place / "reported"

    def run(self) -> None:
        """Look every tenth of a second."""
        with self._output.open(errors="replace") as output:
            for line in self._lines(output):
                if line.startswith("hangs "):
                    self.began, self.step = float(line.split()[1]), int(line.split()[2])
                elif line.startswith(("FAIL", "WARN")) and self.began < math.inf:
                    break
        self.seconds = time.monotonic() - self.began
        self._pipe.write_text("reported")

    @staticmethod
    def _lines(output: TextIO) -> Iterator[str]:
        while True:
            line = output.readline()
            if line:
                yield line
            else:
                time.sleep(0.1)


def follow(run: subprocess.Popen[str], folder: Path, every: float) -> Iterator[Moment]:
    """Look at a job until it ends."""
    began, process, ranks = time.monotonic(), psutil.Process(run.pid), set[int]()
    while run.poll() is None:
        time.sleep(every)
        seen = sample(process, folder)
        ranks |= {int(values[-1]) for role, values in seen.items() if role.startswith("rank")}
        yield time.monotonic() - began, taken(folder, ranks), seen


def launch(place: Path, options: argparse.Namespace, *, watched: bool, steps: int) -> subprocess.Popen[str]:
    """Begin a run of the script."""
    place.mkdir()
    os.mkfifo(place / "reported")
    (place / "train.py").write_text(SCRIPT)
    watch = [sys.executable, "-m", "ddpdoctor", "watch", "--on-hang", "report", "--"] if watched else []
    command = [*watch, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    failures = options.restarts if watched else 0
    command += [
        f"--max-restarts={2 * failures}",
        "train.py",
        str(steps),
        str(options.hang_at if watched else 0),
    ]
    # torchrun's store is else the one of before a restart, with the addresses at which gloo's ranks listened then.
    own = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environ = {**os.environ, **own, "TMPDIR": str(place.parent / "disk")}
    with (place / "output").open("w") as output:
        return subprocess.Popen(
            [*command, str(failures)],
            cwd=place,
            env=environ,
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


@contextmanager
def disk(place: Path, *, of_its_own: bool) -> Iterator[None]:
    """The folder in which the command records, on a disk of its own where that is to be full some time."""
    place.mkdir()
    if of_its_own:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9g", "soak", str(place)], check=True)
    try:
        yield
    finally:
        if of_its_own:
            subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on it."""
    used = shutil.disk_usage(disk).used
    subprocess.run(["mount", "-o", f"remount,size={used}", str(disk)], check=True)


def growth(points: list[tuple[float, float]], pids: list[tuple[float, float]]) -> float:
    """Of the process that lived longest: from the tenth after its warm-up to its last tenth, each as its median."""
    longest = max({pid for _, pid in pids}, key=[pid for _, pid in pids].count)
    own = [point for point, (_, pid) in zip(points, pids, strict=True) if pid == longest]
    late = [value for steps, value in own if steps > own[0][0] + WARM_UP]
    part = max(1, len(late) // 10)
    return median(late[-part:]) - median(late[:part]) if late else 0.0


def main() -> int:
    """Run, print, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--plain", type=int, default=5000, help="steps without the command")
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument(
        "--hang-at", type=int, default=0, help="the step at which rank 0 waits until that is reported"
    )
    parser.add_argument("--hang-after", type=float, default=math.inf, help="seconds, where that is earlier")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which the job is ended by Ctrl-C")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--fill-disk", action="store_true", help="once the job trains; needs root")
    parser.add_argument("--picture", type=Path, help="where the curves are drawn")
    parser.add_argument(
        "--table", type=Path, help="where the numbers are written as docs/results.md has them"
    )
    parser.add_argument("--data", type=Path, help="where all that was seen is written as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        top = Path(name)
        with disk(top / "disk", of_its_own=options.fill_disk):
            plain = launch(top / "plain", options, watched=False, steps=options.plain)
            bare = [seen for _, _, seen in follow(plain, top / "disk", 1.0)]
            watched = launch(top / "job", options, watched=True, steps=options.steps)
            hang, seen = Hang(top / "job"), []
            hang.start()
            for moment in follow(watched, top / "disk", options.every):
                seen.append(moment)
                if moment[0] > options.hang_after:
                    (top / "job" / "hang").touch()
                if options.fill_disk and moment[1]:
                    fill(top / "disk")
                if moment[0] > options.seconds:
                    watched.send_signal(signal.SIGINT)
                if options.data:
                    options.data.write_text(json.dumps(seen))
            output = (top / "job" / "output").read_text()
    return report(options, bare, seen, output, hang)


def curves_of(seen: Sequence[Moment]) -> dict[str, list[list[tuple[float, float]]]]:
    """What was seen of each process, each number over the steps."""
    by_role: dict[str, list[list[tuple[float, float]]]] = defaultdict(lambda: [[], [], [], []])
    for _, steps, processes in seen:
        for role, values in processes.items():
            for number, value in enumerate(values):
                by_role[role][number].append((float(steps), value))
    return by_role


def report(
    options: argparse.Namespace,
    bare: list[dict[str, tuple[float, ...]]],
    seen: Sequence[Moment],
    output: str,
    hang: Hang,
) -> int:
    """Print what was measured, draw it, and return the exit status."""
    seen = [moment for moment in seen if "rank 0" in moment[2]]  # at the end the records may be gone
    by_role = curves_of(seen)
    rates = [(float(later[1]), (later[1] - one[1]) / (later[0] - one[0])) for one, later in pairwise(seen)]
    usual = [values["rank 0"][0] for values in bare[len(bare) // 2 :] if "rank 0" in values]
    more = median(value for _, value in by_role["rank 0"][0]) - median(usual)
    ranks = [role for role in by_role if role.startswith("rank")]
    print(
        f"{seen[-1][1]:,} steps in {seen[-1][0]:,.0f} s, median {median(rate for _, rate in rates):.0f} steps/s"
    )
    missed = tell("soak_rank", more / 2**20)
    before = curves_of([moment for moment in seen if not hang.step or moment[1] < hang.step])
    grown: dict[str, list[float]] = {}
    for role in (*ranks, "command"):
        *curves, pids = before[role]
        memory, files, threads = (growth(points, pids) for points in curves)
        grown[role] = [memory / 2**20, files, threads]
        missed |= tell("soak_growth", memory / 2**20, of=role)
        print(f"  {role}: {files:+.0f} open files, {threads:+.0f} threads")
    record = max(value for _, value in by_role["disk"][1]) / 2**20
    missed |= tell("soak_record", record)
    kept = f"{by_role['disk'][0][-1][1] / 2**20:.1f} MiB in {by_role['disk'][2][-1][1]:.0f} files"
    print(f"  all that is kept: {kept}")
    if hang.step:
        missed |= tell("verdict", hang.seconds, of=f"at step {hang.step:,}")
    if options.table:
        each = {number: ", ".join(f"{grown[role][number]:+.1f}" for role in grown) for number in range(3)}
        rows = [
            ("what", "measured", "limit"),
            ("---", "---", "---"),
            ("memory of a rank, more than without the command", f"{more / 2**20:.1f} MiB", "30 MiB"),
            (
                f"growth of memory after the first {WARM_UP:,} steps: {', '.join(grown)}",
                f"{each[0]} MiB",
                "5 MiB",
            ),
            ("the record of a rank; all files of the run folder", f"{record:.1f} MiB; {kept}", "64 MiB"),
            ("open files more than after them, threads more", f"{each[1]}; {each[2]}", ""),
            (f"from the hang at step {hang.step:,} to the report", f"{hang.seconds:.1f} s", "10 s"),
        ]
        head = f"{seen[-1][1]:,} steps in {seen[-1][0]:,.0f} s, median {median(rate for _, rate in rates):.0f} steps/s"
        lines = [head, "", *(f"| {' | '.join(row)} |" for row in rows)]
        options.table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(line for line in output.splitlines() if not line.startswith("epoch ")))
    if options.picture:
        draw(figures(by_role, rates, median(usual)), options.picture)
    return int(missed)


def figures(
    by_role: dict[str, list[list[tuple[float, float]]]], rates: list[tuple[float, float]], usual: float
) -> list[Lines]:
    """The curves."""

    def of(title: str, y: str, curves: dict[str, list[tuple[float, float]]], unit: float) -> Lines:
        series = tuple(
            Series(name, tuple((steps / 1e3, value / unit) for steps, value in points))
            for name, points in curves.items()
        )
        return Lines(title, "thousand steps", y, series)

    ranks = {role: values[0] for role, values in sorted(by_role.items()) if role.startswith("rank")}
    ranks["without watch"] = [(steps, usual) for steps, _ in ranks["rank 0"]]
    files, threads = (
        {role: values[number] for role, values in by_role.items() if role != "disk"} for number in (1, 2)
    )
    disk_use = {"all files": by_role["disk"][0], "the largest record": by_role["disk"][1]}
    return [
        of("Memory of a rank", "MiB", ranks, 2**20),
        of("Memory of the command", "MiB", {"ddpdoctor watch": by_role["command"][0]}, 2**20),
        of("On the disk", "MiB", disk_use, 2**20),
        of("Open files", "", files, 1.0),
        of("Threads", "", threads, 1.0),
        of("Rate", "steps/s", {"both ranks": rates}, 1.0),
    ]


if __name__ == "__main__":
    sys.exit(main())

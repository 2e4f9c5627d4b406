"""The judging of a job of many ranks that stands still, from records and stacks that are generated.

    python benchmarks/many_ranks.py [--ranks 1024 4096 10000] [--cause rank host switch two]

Each rank has a record as the recorder writes it, of 12 training steps, and a stack as py-spy takes it. In each job
something is planted: one rank that never comes out of its own code; one host, all of whose ranks wait for its disk; the
switch of a rack, behind which no rank is seen any more; two causes at once, a rank that waits for standard input and
a host that works on. A process of its own reads the records, judges the run by every check and writes the report.
Printed: seconds, those of CPU too, which a busy machine changes less, its largest resident memory, the lines of the
report, and the verdict. Limits: 10,000 ranks in 30 s of CPU and 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from limits import tell

if TYPE_CHECKING:
    from ddpdoctor.blame.hang_snapshot import SampledProcess
    from ddpdoctor.model import Where
    from ddpdoctor.recorder.events.schema import Event

ROOT = Path(__file__).resolve().parents[1]
NPROC = 8
"""Ranks on a host."""
HOSTS_IN_RACK = 8
STEPS = 12
SCRIPT = "/jobs/train.py"
_TORCH = "/venv/lib/python3.11/site-packages/torch"


@dataclass(frozen=True)
class Planted:
    """What is wrong in a job."""

    name: str
    culprits: tuple[int, ...]

    @property
    def ranges(self) -> list[str]:
        """The culprits as a report writes them, each cause apart."""
        from ddpdoctor.text import fold_ranks

        causes = (self.culprits[:1], self.culprits[1:]) if self.name == "two" else (self.culprits,)
        return [fold_ranks(ranks) for ranks in causes]


def main() -> int:
    """Generate each job, judge it in a process of its own, print what it took."""
    sys.path.insert(0, str(ROOT))
    options = _parse()
    if options.judge:
        return _judge(Path(options.judge[0]), options.judge[1:])
    wrong = 0
    for ranks in options.ranks:
        for cause in options.cause:
            with tempfile.TemporaryDirectory() as place:
                wrong += _measure(Path(place), ranks, plant(cause, ranks))
    return int(wrong > 0)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024, 4096, 10_000])
    parser.add_argument("--cause", nargs="+", default=["rank", "host", "switch", "two"])
    parser.add_argument("--judge", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def plant(cause: str, ranks: int) -> Planted:
    """A cause, somewhere in the job."""
    rank = int(ranks * 0.6)
    first = rank // NPROC * NPROC
    host = tuple(range(first, first + NPROC))
    culprits = {
        "rank": (rank,),
        "host": host,
        "switch": tuple(range(first, min(ranks, first + NPROC * HOSTS_IN_RACK))),
        "two": (ranks // 5, *host),
    }
    return Planted(cause, culprits[cause])


def _measure(folder: Path, ranks: int, planted: Planted) -> int:
    write_job(folder, ranks, planted)
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--judge", str(folder), *planted.ranges]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        print(f"{ranks} ranks, {planted.name}: ended with status {done.returncode}: {done.stderr[-2000:]}")
        return 1
    measured = json.loads(done.stdout)
    right = set(measured["culprits"]) <= set(planted.culprits) and measured["named"]
    print(
        f"{ranks} ranks, {planted.name}: {seconds:.1f} s ({measured['read']:.1f} to read, "
        f"{measured['judge']:.1f} to judge; {measured['cpu']:.1f} of CPU), "
        f"{measured['memory']:.0f} MiB, {measured['lines']} lines (longest {measured['longest']}): "
        f"{'right' if right else 'WRONG'}: {measured['verdict']}"
    )
    if ranks > 10_000:
        return int(not right)
    of = f"{ranks} ranks, {planted.name}"
    return int(
        (not right)
        | tell("ranks_cpu", measured["cpu"], of=of)
        | tell("ranks_memory", measured["memory"], of=of)
    )


# -- the job ----------------------------------------------------------------------------------------------


def write_job(folder: Path, ranks: int, planted: Planted) -> None:
    """The records and the stacks of all ranks."""
    from ddpdoctor.blame.hang_snapshot import HangSnapshot
    from ddpdoctor.hang import snapshots
    from ddpdoctor.recorder.events.schema import encode

    records = folder / "record"
    records.mkdir()
    unseen = planted.culprits if planted.name == "switch" else ()
    recorded = [rank for rank in range(ranks) if rank not in unseen]
    for rank in recorded:
        lines = [encode(event, getattr(event, "time", 0.0)) for event in _events(rank, ranks, planted)]
        (records / f"{rank}.jsonl").write_text("\n".join(lines) + "\n")
    processes = tuple(_process(rank, planted) for rank in recorded)
    snapshots.write(HangSnapshot(processes, 60.0, ranks, 600.0), folder / "standstill")


def _events(rank: int, ranks: int, planted: Planted) -> Iterator[Event]:
    from ddpdoctor.model import Where
    from ddpdoctor.recorder.events.data import Loader, Sampler
    from ddpdoctor.recorder.events.process import GroupEvent, Start
    from ddpdoctor.recorder.events.schema import SCHEMA
    from ddpdoctor.recorder.events.training import Backward, Forward, Parameter, Wrapper
    from ddpdoctor.recorder.events.updates import Optimizer, OptimizerStep

    def at(line: int) -> Where:
        return Where(SCRIPT, line, "main")

    environ = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % NPROC)}
    host = f"node{rank // NPROC}"
    yield Start(SCHEMA, 0.0, 1, 1000 + rank, 1, host, "2.13.0", SCRIPT, environ)
    yield GroupEvent("init", 1.0, at(20), "nccl", rank, ranks, environ=environ, id=1)
    keys = ("weight", "bias")
    parameters = tuple(Parameter(key, (4,), "float32") for key in keys)
    yield Wrapper(0, at(30), 2.0, "Linear", parameters)
    yield Optimizer(0, "AdamW", keys, at=at(50))
    sampler = Sampler("DistributedSampler", True, rank, ranks, 0, 0, True, total=64 * ranks)
    yield Loader(0, at(40), "TensorDataset", 64 * ranks, batch_size=4, sampler=sampler)
    for step in range(STEPS):
        time = 3.0 + step
        digests = {key: f"{step}{key}" for key in keys}
        yield Forward(time, at(48), 0, input=f"{step}-{rank}", batch=4)
        yield Backward(time + 0.5, at(49), reduced=(0,), collectives=1)
        yield OptimizerStep(0, time + 0.9, at(50), digests, digests, {}, ({"lr": 1e-3},), step=step)
    yield from _last(rank, planted, at(55))


def _last(rank: int, planted: Planted, at: Where) -> Iterator[Event]:
    """The collective in which it stands, where it came to one."""
    from ddpdoctor.recorder.events.training import Collective

    if rank not in planted.culprits:
        yield Collective(17.0, at, "all_reduce", shape=(1,), number=1, ended=False, id=1)


def _process(rank: int, planted: Planted) -> SampledProcess:
    from ddpdoctor.blame.frames import Frame
    from ddpdoctor.blame.hang_snapshot import Doing, SampledProcess

    host, waits = f"node{rank // NPROC}", Doing.WAITS
    main = Frame("main", SCRIPT, 55)
    torch = Frame("all_reduce", f"{_TORCH}/distributed/distributed_c10d.py", 3245)
    stack: Sequence[Frame] = (main, torch)
    doing, call = waits, "futex"
    if rank in planted.culprits:
        if planted.name == "two" and rank == planted.culprits[0]:
            stack, call = (Frame("main", SCRIPT, 60),), "read of a terminal"
            stack = (*stack, Frame("ask", "/jobs/ask.py", 3))
        elif planted.name == "host":
            stack, doing, call = (
                (Frame("main", SCRIPT, 45), Frame("read", "/jobs/data.py", 12)),
                Doing.DISK,
                "",
            )
        else:
            stack, doing, call = (
                (Frame("main", SCRIPT, 58), Frame("parse", "/jobs/data.py", 30)),
                Doing.COMPUTES,
                "",
            )
    return SampledProcess(
        1000 + rank, rank, host=host, doing=doing, call=call, stack=tuple(stack), again=tuple(stack)
    )


# -- the judge --------------------------------------------------------------------------------------------


def _judge(folder: Path, parts: Sequence[str] = ()) -> int:
    """Judge a job as ``check`` and ``watch`` do, and print what it took and what it says.

    Args:
        parts: ranges of ranks that a reader has to find in the report.
    """
    from ddpdoctor import registry
    from ddpdoctor.hang import snapshots
    from ddpdoctor.judge import compose, judge
    from ddpdoctor.model import Source
    from ddpdoctor.redact import clean
    from ddpdoctor.report import Format, render
    from ddpdoctor.trace.live import live_trace
    from ddpdoctor.trace.reader import read_run
    from ddpdoctor.trace.recorded_job import cause_of_run

    begun = time.perf_counter()
    trace = live_trace(snapshots.read(folder / "standstill"), read_run(folder / "record"))
    read = time.perf_counter()
    broke: list[str] = []
    verdicts = judge(Source.RUN, registry.select(Source.RUN), trace, broke.append)
    report = compose(verdicts, {"nproc": len(trace.ranks)}, time.monotonic())
    text = render(clean(report, {}), Format.TERMINAL)
    done = time.perf_counter()
    cause = cause_of_run(trace)
    lines = text.splitlines()
    measured = {
        "read": read - begun,
        "judge": done - read,
        "cpu": time.process_time(),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "culprits": list(cause.culprits) if cause else [],
        "named": bool(cause) and all(part in text for part in parts),
        "verdict": "; ".join(f"{finding.code}: {finding.headline}" for finding in report.findings)
        + "".join(broke),
        "lines": len(lines),
        "longest": max(map(len, lines)),
    }
    print(json.dumps(measured))
    (folder / "report.txt").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

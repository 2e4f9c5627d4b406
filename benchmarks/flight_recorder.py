"""Who is to blame, from the flight recorder's dumps of a large job, against PyTorch's own analyzer.

    python benchmarks/flight_recorder.py [--ranks 1024] [--entries 2000]

Both read the same files in turn. The analyzer is ``python -m torch.distributed.flight_recorder.fr_trace``. Printed:
seconds, those of CPU too, which a busy machine changes less, the ratio, our largest resident memory, and whether the
planted culprit was named.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import tell

ROOT = Path(__file__).resolve().parents[1]
CULPRIT = 0.6
"""The rank that stays away, as a share of all."""
START = """
import sys
from pathlib import Path
from ddpdoctor.blame.hang_analysis import cause_of
from ddpdoctor.hang.flight.dumped_job import DumpedJob
from ddpdoctor.hang.flight.folder import read_folder
"""
JUDGE = f"""{START}
cause = cause_of(DumpedJob(read_folder(Path(sys.argv[1])).ranks))
print(type(cause).__name__, *cause.culprits)
"""


def main() -> None:
    """Write the dumps, run both, print the comparison."""
    sys.path.insert(0, str(ROOT))
    options = _parse()
    with tempfile.TemporaryDirectory() as place:
        folder, culprit = Path(place) / "dumps", int(options.ranks * CULPRIT)
        _write(folder, options.ranks, options.entries, culprit)
        ours, our_cpu, output = _timed([sys.executable, "-c", JUDGE, str(folder)])
        print(
            f"ddpdoctor: {ours:.1f} s ({our_cpu:.1f} s of CPU); it says: {output.strip()}; planted: rank {culprit}"
        )
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"largest process of ours: {peak:.0f} MiB")
        if not options.alone:
            module = "torch.distributed.flight_recorder.fr_trace"
            theirs, cpu, _ = _timed([sys.executable, "-W", "ignore", "-m", module, str(folder)])
            print(f"fr_trace: {theirs:.1f} s ({cpu:.1f} s of CPU, {cpu / our_cpu:.1f} times ours)")
            start = min(_timed([sys.executable, "-c", START])[0] for _ in range(3))
            parsed = _parsing(folder) / len(os.sched_getaffinity(0))
            print(
                f"of ours {start:.2f} s are for Python and imports, and pickle takes {parsed:.2f} s on all CPUs"
                f" to make objects of the files: no less than both is {theirs / (start + parsed):.1f} times as fast"
            )
            tell("dumps", theirs / ours, of=f"{options.ranks} ranks")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--alone", action="store_true", help="leave PyTorch's analyzer out")
    return parser.parse_args()


def _write(folder: Path, ranks: int, entries: int, culprit: int) -> None:
    from tests.support.flight import ring, waiting, write_job

    common = ring(1, entries)
    write_job(folder, ranks, lambda rank: common if rank == culprit else [*common, waiting(entries + 1)])


def _timed(command: list[str]) -> tuple[float, float, str]:
    """Seconds, seconds of CPU of all its processes, and what it says."""
    begun, used = time.perf_counter(), _cpu_of_children()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"ended with status {done.returncode}: {done.stderr[-300:]}", file=sys.stderr)
    return time.perf_counter() - begun, _cpu_of_children() - used, done.stdout


def _parsing(folder: Path) -> float:
    """Seconds of CPU in which pickle alone makes objects of every file, without the garbage collector."""
    gc.disable()
    begun = time.process_time()
    for file in folder.iterdir():
        pickle.loads(file.read_bytes())
    return time.process_time() - begun


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

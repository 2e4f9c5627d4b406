"""What is to be run, and the command line and environment that run it with the recorder inside."""

import itertools
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import ddpdoctor
from ddpdoctor.job.guarded import python_command
from ddpdoctor.job.private_view import user
from ddpdoctor.job.torchrun import LOGS
from ddpdoctor.job.written_files import view_command
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.text import quote_command

RECORD = "record"
"""The folder, inside a run's own, for the records of its processes."""
_INJECT = Path(ddpdoctor.__file__).parent / "recorder" / "inject"
GATE = "gate"
"""The file, in the job's folder, for which ranks that are held wait."""
_TORCHRUN = (
    "import gc, sys; sys.path[:] = filter(None, sys.path); gc.disable(); from torch.distributed.run import main; "
    "gc.enable(); main()"
)
"""What the torchrun command runs. Unlike ``python -m``, it does not search the current directory, where a user may
have a random.py; and it collects no garbage while it imports torch, which would take a tenth of that time."""
_MONITOR_SECONDS = "0.5"
"""Between torchrun's looks at its ranks: it ends all where one has failed, and who fails alike a moment later could
not say so, nor a victim what it saw. Its own default is 0.1."""
_FLIGHT_RECORDER = "2000"
"""Collectives that the flight recorder keeps on each rank."""
_THREADS = "1"
"""Threads of a rank that computes on the CPU what is meant for a GPU: torchrun's own default, which other launchers
do not set. Ranks that each take all CPUs wait for each other's threads, ten times as long as they compute."""
_NO_NUMPY = "ignore:Failed to initialize NumPy"
"""What torch warns of on every rank where NumPy is absent, which it does not need."""
_RENAMED_IN = (2, 8)
"""The torch that gave the flight recorder's variable its name, and warns of the older one."""


_NNODES = re.compile(r"--n(nodes|um_machines)(=|$)")
"""torchrun's and accelerate's option for the number of hosts."""


class JobKind(str, Enum):
    """What the words of a job are."""

    SCRIPT = "script"
    """A file and its arguments, for torchrun."""
    MODULE = "module"
    """A module's name and its arguments, for torchrun."""
    LINE = "line"
    """A whole launch line, run as it stands."""


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    kind: JobKind
    words: tuple[str, ...]
    """The script or module and its arguments; or the launch line."""
    recorder: RecorderOptions = field(default_factory=RecorderOptions)
    bundled: bool = False
    """Whether this is the bundled trainer: torchrun forks its ranks, and holds them until they are released."""
    private: bool = False
    """Whether it runs in a private view of the file system, so that what it writes is undone."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        if self.kind is JobKind.LINE:
            return quote_command(self.words)
        return f"-m {self.words[0]}" if self.kind is JobKind.MODULE else self.words[0]

    def command(self, launch: Launch, folder: Path) -> list[str]:
        if not self.private:
            return self._command(launch, folder)
        script = self.words[0] if self.kind is JobKind.SCRIPT else None
        return view_command(self._command(launch, folder), folder, script, self._why_no_view(launch))

    def _why_no_view(self, launch: Launch) -> str | None:
        """Why its processes cannot have a view of their own, where that is so."""
        pairs = itertools.pairwise((*self.words, ""))
        nodes = [word.partition("=")[2] or after for word, after in pairs if _NNODES.match(word)]
        if launch.nnodes > 1 or (self.kind is JobKind.LINE and set(nodes) - {"1", "1:1"}):
            return "hosts may share a disk"
        if self.kind is JobKind.LINE and Path(self.words[0]).name == "srun":
            return "Slurm starts the ranks"
        return None

    def _command(self, launch: Launch, folder: Path) -> list[str]:
        if self.kind is JobKind.LINE:
            return list(self.words)
        if self.bundled:
            variables = self._recorder_environ(launch, folder)
            command = python_command("ddpdoctor.job.forked_torchrun", variables, str(folder / GATE))
            return [*command, *_torchrun_options(launch, folder), "--", *self.words]
        module = ["-m"] if self.kind is JobKind.MODULE else []
        patient = [] if launch.max_restarts else ["--monitor-interval", _MONITOR_SECONDS]
        # Without the two dashes torchrun's parser takes the script's own options for its own where they begin alike.
        torchrun = [sys.executable, "-c", _TORCHRUN, *_torchrun_options(launch, folder)]
        return [*torchrun, *patient, *module, "--", *self.words]

    def environ(self, launch: Launch, folder: Path, torch: str | None) -> dict[str, str]:
        """The environment that it runs in, where this version of torch is installed."""
        environ = dict(os.environ) if self.kind is JobKind.LINE else _without_launch_defaults(os.environ)
        if self.bundled:
            environ.pop("PYTHONSAFEPATH", None)  # it would hide the trainer's own modules from it
        path = os.pathsep.join(filter(None, (str(_INJECT), environ.get("PYTHONPATH"))))
        # What torchrun sets for its ranks has to stand before forked ones import torch, since they do not.
        sets_threads = self.recorder.rehearse or (self.bundled and launch.nproc > 1)
        return {
            **_compiler_cache(folder),
            **_flight_recorder(environ, torch),
            **({"OMP_NUM_THREADS": _THREADS} if sets_threads else {}),
            **environ,
            # Forked ranks get theirs from the process that forks them, which is not to be recorded.
            **({} if self.bundled else self._recorder_environ(launch, folder)),
            "PYTHONPATH": path,
        }

    def _recorder_environ(self, launch: Launch, folder: Path) -> dict[str, str]:
        return recorder_options(self.recorder, launch, folder / RECORD).to_environment()

    def plain_environ(self, folder: Path) -> dict[str, str]:
        """The environment that it runs in where nothing is recorded."""
        environ = _without_launch_defaults(os.environ)
        environ.pop("PYTHONSAFEPATH", None)  # it would hide the trainer's own modules from it
        return {**_compiler_cache(folder), "PYTHONWARNINGS": _NO_NUMPY, **environ}


def recorder_options(asked: RecorderOptions, launch: Launch, record: Path) -> RecorderOptions:
    """What is asked of the recorder in the ranks of a launch, which write into a folder."""
    if (imagined := launch.imagined) is None:
        return replace(asked, record=str(record), nproc=launch.nproc)
    ranks = ",".join(map(str, imagined.ranks))
    return replace(
        asked, record=str(record), nproc=imagined.nproc, world_size=imagined.world_size, ranks=ranks
    )


def _torchrun_options(launch: Launch, folder: Path) -> list[str]:
    options = {
        "--nnodes": f"{launch.min_nodes}:{launch.nnodes}" if launch.spare_nodes else str(launch.nnodes),
        "--nproc-per-node": str(launch.nproc),
        "--max-restarts": str(launch.max_restarts),
        "--log-dir": str(folder / LOGS),
        "--redirects": "3",
        **_rendezvous(launch),
    }
    standalone = ["--standalone"] if launch.finds_port else []
    return [*standalone, *itertools.chain.from_iterable(options.items())]


def _rendezvous(launch: Launch) -> dict[str, str]:
    if launch.finds_port:
        # Whether this host's name resolves is another check's matter.
        return {"--local-addr": "127.0.0.1"}
    master = {"--master-addr": launch.master_addr, "--master-port": str(launch.master_port)}
    place = {f"--rdzv-{name}": value for name, value in launch.rendezvous} or master
    return {"--node-rank": str(launch.node_rank), **place}


def _without_launch_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without PET_*, which a cluster sets for its own job and torchrun takes its defaults from."""
    return {name: value for name, value in environ.items() if not name.startswith("PET_")}


def _compiler_cache(folder: Path) -> dict[str, str]:
    """Where torch's compiler keeps its results: torch would make a folder in the temporary one and leave it there."""
    usual = Path(tempfile.gettempdir()) / f"torchinductor_{user()}"
    return {} if usual.exists() else {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


def _flight_recorder(environ: Mapping[str, str], torch: str | None) -> dict[str, str]:
    newer, older = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if newer in environ or older in environ:
        return {}
    major, minor = (*((torch or "").split(".")), "", "")[:2]
    is_old = major.isdigit() and minor.isdigit() and (int(major), int(minor)) < _RENAMED_IN
    return {older if is_old else newer: _FLIGHT_RECORDER}

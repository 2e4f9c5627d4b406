r"""What launchers, schedulers and containers set, print and are called: one row each, which everybody else reads.

Expressions are put together with those of the other rows, so their groups have fixed names, of which alternatives in
one expression append a number (``code_1``): ``rank``, ``local`` (rank), ``pid``, ``host``, ``tasks`` (``0-3,5``), and
of an end ``code``, ``signal`` (its number) or ``name`` (``SIGKILL``, ``Killed``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

NAMES_OF_SIGNALS = {
    "Killed": "SIGKILL",
    "Bus error": "SIGBUS",
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Terminated": "SIGTERM",
    "Hangup": "SIGHUP",
    "Illegal instruction": "SIGILL",
    "Out Of Memory": "SIGKILL",
}
"""By the words with which shells and schedulers name them."""
_NAMED = "|".join(NAMES_OF_SIGNALS)


class Numbering(Enum):
    """What the number in a line's label is that of."""

    RANK = "rank"
    LOCAL_RANK = "local rank"
    """In the labels of torchrun's --tee, [default0] for instance."""
    TASK = "task"
    """Of srun or mpirun, which may be a launcher of ranks itself."""


@dataclass(frozen=True)
class Launcher:
    """One row."""

    name: str
    programs: tuple[str, ...] = ()
    """Commands that start ranks."""
    marks: tuple[str, ...] = ()
    """Variables that a process of its jobs has."""
    rank: tuple[str, ...] = ()
    """Variables with the number of a process in the job, the surest first."""
    local_rank: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    """Variables that are equal on all ranks of a job, and differ between jobs."""
    more: tuple[str, ...] = ()
    """Further variables that are recorded."""
    step: tuple[str, str, str] = ("", "", "")
    """Of a command that it starts: variables with the number of processes, of nodes, and the first node's address."""
    once: str = ""
    """Its options to start a command once on each of ``{nodes}`` nodes."""
    label: str = ""
    """What it puts before each line of a process."""
    numbering: Numbering = Numbering.RANK
    """What the rank in that label is."""
    who: str = ""
    """In its summary of a failure, the line of a process, above that of its end."""
    how: str = ""
    """That line of the end."""
    ended: tuple[str, ...] = ()
    """The end of a process, told in one line."""
    over_memory: str = ""
    """How it says that it ended a job or a task because of its memory."""
    task_out_of_memory: str = ""
    """How it says that the kernel's out-of-memory killer ended a task."""
    over_time: str = ""
    """How it says that it ended a job at its time limit, or for another job."""
    not_started: tuple[str, ...] = ()
    """How it says that it could not start a job."""
    start_fix: str = "run the command of that line by hand, in the same shell, container or allocation"
    """What to do about that."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """The variables that tell processes of a job apart."""
        return (*self.rank, *self.local_rank, *self.node)

    @property
    def alike(self) -> tuple[str, ...]:
        """The variables that are equal on all ranks."""
        return (*self.size, *self.local_size, *self.nodes, *self.job)


LAUNCHERS = (
    Launcher(
        "torchrun",
        programs=("torchrun",),
        marks=("TORCHELASTIC_RUN_ID",),
        rank=("RANK", "ROLE_RANK"),
        local_rank=("LOCAL_RANK",),
        node=("GROUP_RANK", "NODE_RANK"),
        size=("WORLD_SIZE", "ROLE_WORLD_SIZE"),
        local_size=("LOCAL_WORLD_SIZE",),
        nodes=("GROUP_WORLD_SIZE",),
        job=("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
        more=(
            "TORCHELASTIC_RESTART_COUNT",
            "TORCHELASTIC_MAX_RESTARTS",
            "TORCHELASTIC_USE_AGENT_STORE",
            "OMP_NUM_THREADS",
            "CUDA_VISIBLE_DEVICES",
        ),
        label=r"\[(?:rank(?P<rank>\d{1,6})|[A-Za-z_]*?(?P<local>\d{1,6}))(?:\|\d+)?\]:\s?",
        who=r"^\s*host      : (?P<host>\S+)|^\s*rank\s*: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)",
        how=r"^\s*exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)",
        ended=(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)",),
    ),
    Launcher(
        "mpirun",  # of Open MPI, SageMaker's too
        programs=("mpirun",),
        marks=("OMPI_COMM_WORLD_RANK",),
        rank=("OMPI_COMM_WORLD_RANK",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        node=("OMPI_COMM_WORLD_NODE_RANK",),
        size=("OMPI_COMM_WORLD_SIZE",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE",),
        step=("OMPI_COMM_WORLD_SIZE", "", "OMPI_MCA_orte_hnp_uri"),
        once="mpirun -N 1",
        label=r"(?:[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \d{4})?"  # with --timestamp-output
        r"\[(?:prterun-[^\]@\s]{1,80}@)?1,(?:mpirank:)?(?P<rank>\d{1,6})(?:,(?P<host>[^\]\s]{1,80}))?\]"
        r"<std(?:out|err)>:?\s?",
        numbering=Numbering.TASK,
        who=r"^\s*Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]"
        r"|noticed that process rank (?P<rank_1>\d+) with PID .{1,200} exited on$"
        r"|^MPI_ABORT was invoked on rank (?P<rank_2>\d+)",
        how=r"^\s*Exit code:\s+(?P<code>\d+)$|^signal (?P<signal>\d+) \(|^with errorcode (?P<code_1>\d+)\.",
        ended=(r"(?:process rank (?P<rank>\d+) with PID .{1,200}?)?exited on signal (?P<signal>\d+)",),
        not_started=(r"There are not enough slots available in the system.*|(?:ORTE|PRTE) was unable to.*",),
    ),
    Launcher(
        "mpiexec",  # Hydra, of MPICH and Intel MPI
        programs=("mpiexec",),
        marks=("PMI_RANK", "PMIX_RANK"),
        rank=("PMI_RANK", "PMIX_RANK"),
        local_rank=("MPI_LOCALRANKID",),
        size=("PMI_SIZE",),
        label=r"\[(?P<rank>\d{1,6})\]\s(?=\S+:\d+:\d+\ \[)",  # before NCCL's own
        who=r"^=\s+(?:RANK (?P<rank>\d+) )?PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)",
        how=r"^=\s+(?:EXIT CODE: (?P<code>\d+)|KILLED BY SIGNAL: (?P<signal>\d+))"
        r"|EXIT STRING: .{1,60} \(signal (?P<signal_1>\d+)\)",
    ),
    Launcher(
        "Slurm",
        programs=("srun",),
        marks=("SLURM_JOB_ID", "SLURM_PROCID"),
        rank=("SLURM_PROCID",),
        local_rank=("SLURM_LOCALID",),
        node=("SLURM_NODEID",),
        size=("SLURM_NTASKS",),
        nodes=("SLURM_NNODES",),
        job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
        step=("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST"),
        once="srun --nodes {nodes} --ntasks-per-node 1",
        label=r"\s*(?P<rank>\d{1,5}):\s(?=\S|\s{2}|\t|$)",
        numbering=Numbering.TASK,
        ended=(
            r"srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): "
            rf"(?:Exited with exit code (?P<code>\d+)|(?P<name>{_NAMED}))",
        ),
        over_memory=r"slurmstepd(?:-\S+)?: .{0,80}exceeded (?:\w+ )?memory limit",
        task_out_of_memory=r"task \d+: Out Of Memory",
        over_time=r"DUE TO (?:TIME LIMIT|PREEMPTION)",
        not_started=(
            r"execve\(\): .{1,200}: (?:No such file or directory|Permission denied)",
            r"^srun: (?:fatal|error): (?:Unable to (?:create|allocate|confirm)|Task launch|Application launch failed"
            r"|.{0,200}mutually exclusive).*",
            r"^slurmstepd: error: pyxis: (?:container start failed|couldn't|failed to).*",
        ),
    ),
    Launcher("PBS", marks=("PBS_JOBID",), job=("PBS_JOBID",)),
    Launcher("LSF", marks=("LSB_JOBID",), job=("LSB_JOBID",)),
    Launcher("Flux", programs=("flux run",), rank=("FLUX_TASK_RANK",)),
    Launcher("PALS", rank=("PALS_RANKID",)),
    Launcher("MVAPICH", rank=("MV2_COMM_WORLD_RANK",), local_rank=("MV2_COMM_WORLD_LOCAL_RANK",)),
    Launcher("accelerate", programs=("accelerate launch",)),
    Launcher(
        "DeepSpeed",
        programs=("deepspeed",),
        ended=(r"exits with return code = (?P<code>-?\d+)",),
        not_started=(r"^pdsh@\S+: \S+: ssh exited with exit code 255",),
    ),
    Launcher(
        "torch.multiprocessing",
        ended=(r"process (?P<rank>\d+) terminated with (?:exit code (?P<code>\d+)|signal (?P<name>SIG\w+))",),
    ),
    Launcher(
        "Horovod",
        programs=("horovodrun",),
        ended=(r"^Process (?P<rank>\d+) exit with status code (?P<code>\d+)\.$",),
    ),
    Launcher("Lightning", label=r"\[rank:?\ (?P<rank>\d{1,6})\]\s?"),
    Launcher(
        "Ray",  # vLLM's too
        label=r"\(\S*\ ?(?:rank=(?P<rank>\d+)[^)]*|pid=(?P<pid>\d+)(?:,\ ip=(?P<host>[\w.:]+))?[^)]*)\)\s?",
    ),
    Launcher(
        "supervisors",
        ended=(
            r"(?:^(?P<host>\S+): )?\b[Rr]ank (?P<rank>\d+)(?: \(PID (?P<pid>\d+)\))? "
            r"(?:died from signal (?P<signal>\d+)|(?:exited|crashed) with (?:exit )?code (?P<code>-?\d+))",
            r"Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)",
        ),
    ),
    Launcher(
        "subprocess",
        ended=(
            r"died with <Signals\.(?P<name>SIG\w+)",
            r"returned non-zero exit status (?P<code>\d+)",
        ),
    ),
    Launcher(
        "Kubernetes",
        label=r"\[pod/(?P<host>[^\]\s/]+)[^\]\s]*\]\s",
        ended=(
            r"^command terminated with exit code (?P<code>\d+)$",
            r"^\s*Exit Code:\s{2,}(?P<code>\d{1,3})$",
        ),
        not_started=(
            r"Failed to pull image .*|\bErrImagePull\b|\bImagePullBackOff\b",
            r"\d+/\d+ nodes are available: .*",
        ),
        start_fix="ask for what the cluster has, and for an image that its nodes can pull: kubectl describe pod POD",
    ),
    Launcher(
        "Docker",
        label=r"[\w.-]+\s+\|\s(?=\S|\s)",
        ended=(r"^\S+ exited with code (?P<code>\d+)$",),
        not_started=(r"^docker: Error response from daemon: .*",),
    ),
    Launcher(
        "shells",
        ended=(
            r"\b(?:exit code|exit status|Exit code|Exit Code|Exit status|exitCode|exitcode):?\s{1,9}"
            r"(?P<code>1(?:29|3[0-9]|4[0-3]))\b",
            rf"^(?:\S*: line \d+:\s+(?P<pid>\d+) )?(?P<name>{_NAMED})(?:\s+\(core dumped\))?(?:\s{{2,}}.*)?$",
        ),
    ),
)
RANK_VARIABLES = tuple(dict.fromkeys(name for launcher in LAUNCHERS for name in launcher.numbers))
"""Environment variables in which launchers tell a process its number."""
EQUAL_VARIABLES = tuple(dict.fromkeys(name for launcher in LAUNCHERS for name in launcher.alike))
"""Those that all processes of a job have alike."""
LAUNCHER_VARIABLES = (
    *RANK_VARIABLES,
    *EQUAL_VARIABLES,
    *(name for launcher in LAUNCHERS for name in launcher.more),
)
PROGRAMS = tuple(program for launcher in LAUNCHERS for program in launcher.programs)
COMMANDS = tuple(program.partition(" ")[0] for program in PROGRAMS)


def by_name(name: str) -> Launcher:
    return next(launcher for launcher in LAUNCHERS if launcher.name == name)


_GROUPS_OF_ONE = 100


def any_of(expressions: Iterable[str]) -> str:
    """One expression for several, whose groups are numbered apart: see :func:`fields` and :func:`place_of`."""
    return "|".join(_numbered(text, n * _GROUPS_OF_ONE) for n, text in enumerate(filter(None, expressions)))


def _numbered(expression: str, first: int) -> str:
    numbers = itertools.count(first)
    return re.sub(r"\(\?P<([a-z]+)\w*>", lambda match: f"(?P<{match[1]}_{next(numbers)}>", expression)


def fields(match: re.Match[str]) -> dict[str, str]:
    """What the groups of a match hold, by their names without numbers."""
    return {name.partition("_")[0]: text for name, text in match.groupdict().items() if text is not None}


def place_of(match: re.Match[str]) -> int:
    """Which of the expressions that :func:`any_of` was given, and that has groups, it is a match of."""
    return int((match.lastgroup or "").rpartition("_")[2]) // _GROUPS_OF_ONE

from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.group.launch_variables import contradictions as contradictions_of_group
from ddpdoctor.host import Host
from ddpdoctor.host.known_variables import whole_number
from ddpdoctor.launch import Launch
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Evidence, Finding, Judgement, Kind, Passed
from ddpdoctor.redact import show_value

OF_ONE_RANK = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
)
"""What a launcher gives each process; a shell has no use for them."""
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")
OPERATOR = ("RANK", "WORLD_SIZE", *RENDEZVOUS)
"""The set that a job operator (a PyTorchJob pod, for instance) gives each node on purpose."""
PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
LAUNCHERS = {
    "TORCHELASTIC_RUN_ID": "torchrun",
    "OMPI_COMM_WORLD_RANK": "mpirun",
    "PMI_RANK": "mpiexec",
    "PMIX_RANK": "mpiexec",
    "SLURM_JOB_ID": "Slurm",
    "SLURM_PROCID": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
}
"""What a process has in its environment where a launcher or a batch system started it."""
_SET_BY_LAUNCHERS = "RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|MASTER_ADDR|MASTER_PORT"


class LaunchVariables(Check):
    """Launch variables such as RANK, WORLD_SIZE and MASTER_PORT are wrong or left over in this shell.

    What it finds:
        Launch variables in this shell that are not numbers, out of range, contradict each other, the launch that
        is asked for or Slurm's own; and RANK, LOCAL_RANK or WORLD_SIZE left over from an earlier experiment.
        Inside a process that torchrun, mpirun or a batch system started, and in a pod whose operator sets
        MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK together, they belong there.
        In a live group, ranks whose variables are missing, not unique, not dense, or not what the group says.

    Why it matters:
        torchrun gives its ranks fresh values, but whatever else is started from this shell inherits the old ones:
        `python train.py` believes that it is rank 0 of 8 and waits for seven ranks that nobody starts, and every
        `if rank == 0` in a helper process holds.

    Example:
        A line of an earlier test that is still exported:
            export RANK=0 WORLD_SIZE=8
            python train.py                          # waits in init_process_group

    Fix:
        Remove them from the shell and from its start-up files:
            unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
    """

    code = "DD001"
    title = "launch variables agree"
    measurements = ("variables",)
    raises = (
        rf"environment variable (?P<name>{_SET_BY_LAUNCHERS}) expected, but not set",
        rf"KeyError: '(?P<name>{_SET_BY_LAUNCHERS})'",
    )

    def examine_host(self, host: Host) -> Judgement:
        variables = {
            name: host.environ[name] for name in (*OF_ONE_RANK, *RENDEZVOUS) if host.environ.get(name)
        }
        malformed = [self._wrong([text], variables, name) for name, text in _malformed(variables)]
        if malformed:
            return malformed
        if contradictions := list(_contradictions(variables, host.environ, host.launch)):
            return self._wrong(contradictions, variables)
        left = [name for name in OF_ONE_RANK if name in variables]
        if not left:
            return Passed("no launch variable is left over in this shell")
        origin = _origin(host.environ)
        if origin is None:
            return self._left_over(left, variables)
        return Passed(f"{', '.join(left)} {'belongs' if len(left) == 1 else 'belong'} to {origin}")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("variables")
        wrong = list(contradictions_of_group(values))
        if wrong:
            return self.fail(
                wrong[0].text,
                why="A rank chooses its data, its device and its peers by these variables. Where they contradict the "
                "group, ranks share a device or samples, or wait for a rank that is not there.",
                fix="start the ranks with torchrun, and leave RANK, WORLD_SIZE and similar variables out of "
                "wrapper scripts and of sitecustomize",
                ranks=tuple(sorted({rank for evidence in wrong for rank in evidence.ranks})),
                evidence=tuple(wrong),
            )
        many = "rank" if len(values) == 1 else "ranks"
        return Passed(f"torchrun's variables are complete and agree with the group on {len(values)} {many}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(*self.raises)
        name = reason.match["name"]
        return self.fail(
            f"{name} was not set in the environment of the script",
            why=f"Launchers set {name} for every rank. A script that is started by python itself, or through "
            "a shell that does not pass the environment on (sudo, ssh, a container), does not have it.",
            fix="torchrun --standalone --nproc-per-node 4 train.py",
            **log_fields(reason),
        )

    def _wrong(self, wrong: list[str], variables: Mapping[str, str], *names: str) -> Finding:
        return self.fail(
            wrong[0],
            why="A rank reads its place in the job and the way to rank 0 from these variables. torchrun replaces them "
            "for its ranks; a script started in another way fails on them, or waits for ranks that nobody starts.",
            fix=f"unset {' '.join(variables)}; and remove the lines that export them from the job script or ~/.bashrc",
            evidence=(*(Evidence(text) for text in wrong[1:]), *_shown(variables)),
            about=Kind.VARIABLE.of(*names),
        )

    def _left_over(self, left: list[str], variables: Mapping[str, str]) -> Finding:
        shown = ", ".join(f"{name}={int(variables[name])}" for name in left)
        verb = "is" if len(left) == 1 else "are"
        return self.warn(
            f"{shown} {verb} exported in this shell, which no launcher started",
            why="torchrun replaces them for its ranks, but a script started with python or mp.spawn inherits them: it "
            "takes itself for that rank, or waits in init_process_group for ranks that nobody starts.",
            fix=f"unset {' '.join(left)}; and remove the lines that export them from ~/.bashrc or the job script",
            evidence=_shown(variables),
            about=Kind.VARIABLE.of(*left),
        )


def _shown(variables: Mapping[str, str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"{name}={show_value(name, value)}") for name, value in variables.items())


def _malformed(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in variables.items():
        if name == "MASTER_ADDR":
            continue
        if whole_number(value) is None:
            yield name, f"{name}={show_value(name, value)} is not a number"
        elif name == "MASTER_PORT" and not 0 <= int(value) <= 65535:
            yield name, f"MASTER_PORT={int(value)} is not between 0 and 65535"
        elif int(value) < int(name.endswith("WORLD_SIZE")):
            yield name, f"{name}={int(value)} is below {int(name.endswith('WORLD_SIZE'))}"


def _contradictions(
    variables: Mapping[str, str], environ: Mapping[str, str], launch: Launch
) -> Iterator[str]:
    number = {name: int(value) for name, value in variables.items() if name != "MASTER_ADDR"}
    for rank, size in PAIRS:
        if rank in number and size in number and number[rank] >= number[size]:
            yield f"{rank}={number[rank]} is not below {size}={number[size]}"
    if number.get("LOCAL_WORLD_SIZE", 0) > number.get("WORLD_SIZE", number.get("LOCAL_WORLD_SIZE", 0)):
        yield f"LOCAL_WORLD_SIZE={number['LOCAL_WORLD_SIZE']} is above WORLD_SIZE={number['WORLD_SIZE']}"
    if _launched(environ) == "Slurm":
        yield from _against_slurm(number, environ)
    elif not _launched(environ):
        yield from _against_launch(number, environ, launch)


def _against_launch(number: Mapping[str, int], environ: Mapping[str, str], launch: Launch) -> Iterator[str]:
    size, local = number.get("WORLD_SIZE"), number.get("LOCAL_WORLD_SIZE")
    from_operator = _by_operator(environ) and not launch.explicit & {"nnodes", "node_rank"}
    if size is not None and size not in (launch.world_size, launch.nnodes) and not from_operator:
        yield f"WORLD_SIZE={size} is exported, but the launch asked for has {launch.world_size} ranks"
    if local is not None and local != launch.nproc:
        yield f"LOCAL_WORLD_SIZE={local} is exported, but the launch asked for has {launch.nproc} ranks on this node"


def _against_slurm(number: Mapping[str, int], environ: Mapping[str, str]) -> Iterator[str]:
    """RANK may be that of the task or of the node, WORLD_SIZE any multiple of the nodes: GPUs are not tasks."""
    tasks, nodes = _slurm(environ, "SLURM_NTASKS"), _slurm(environ, "SLURM_NNODES")
    size, rank = number.get("WORLD_SIZE"), number.get("RANK")
    if size is not None and nodes and size % nodes and size != tasks:
        yield f"WORLD_SIZE={size} contradicts Slurm's {nodes} nodes"
    process, node = _slurm(environ, "SLURM_PROCID"), _slurm(environ, "SLURM_NODEID")
    in_step = _slurm(environ, "SLURM_STEP_NUM_TASKS") or 0
    if rank is not None and in_step > 1 and rank not in (process, node):
        yield f"RANK={rank} contradicts SLURM_PROCID={process}"


def _slurm(environ: Mapping[str, str], name: str) -> int | None:
    return whole_number(environ.get(name, ""))


def _launched(environ: Mapping[str, str]) -> str | None:
    """The launcher or batch system that started this process."""
    return next((who for marker, who in LAUNCHERS.items() if environ.get(marker)), None)


def _by_operator(environ: Mapping[str, str]) -> bool:
    return all(environ.get(name) for name in OPERATOR) and not environ.get("LOCAL_RANK")


def _origin(environ: Mapping[str, str]) -> str | None:
    """Who set the variables on purpose; None where they are left over."""
    launcher = _launched(environ)
    if launcher:
        return f"a job of {launcher}"
    return "a job whose operator sets them for each node" if _by_operator(environ) else None

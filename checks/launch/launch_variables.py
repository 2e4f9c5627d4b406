from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Kind, Passed
from ddpdoctor.failures import Message
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.group.rank_variables import contradictions as contradictions_of_group
from ddpdoctor.host import Host
from ddpdoctor.host.known_variables import whole_number
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.launchers import LAUNCHERS, by_name
from ddpdoctor.text import plural, show_variable

TORCHRUN = by_name("torchrun")
OF_ONE_RANK = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
)
"""What a launcher sets for each process; a shell does not need them."""
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")
OPERATOR = ("RANK", "WORLD_SIZE", *RENDEZVOUS)
"""What a job operator (for instance of a PyTorchJob) sets on each node."""
PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
_SLURM = by_name("Slurm")
_SET_BY_LAUNCHERS = "|".join((*TORCHRUN.numbers, *TORCHRUN.alike))


class LaunchVariables(Check):
    """Launch variables such as RANK, WORLD_SIZE and MASTER_PORT are wrong or left over in this shell.

    What it finds:
        Launch variables in this shell that are not numbers, are out of range, or contradict each other, the requested
        launch or Slurm's own variables; and RANK, LOCAL_RANK or WORLD_SIZE left over from an earlier experiment.
        They are correct in a process that torchrun, mpirun or a batch system started, and in a pod whose operator
        sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK together.
        In a live group, ranks whose variables are missing, not unique, not contiguous, or differ from the group's.

    Why it matters:
        A rank selects its data, its device and its peers by these variables. torchrun sets them for its ranks, but a
        script started with python or mp.spawn inherits old values: it shares a device or samples with another rank, or
        waits in init_process_group for ranks that were never started.

    Example:
        Variables of an earlier test that are still exported:
            export RANK=0 WORLD_SIZE=8
            python train.py                          # waits in init_process_group

    Fix:
        Remove them from the shell, its start-up files and the job script:
            unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
    """

    code = "DD001"
    title = "launch variables agree"
    measurements = ("variables",)
    messages = (
        Message(
            rf"(?:environment variable |KeyError: ')(?P<name>{_SET_BY_LAUNCHERS})(?: expected, but not set|')",
            headline="{name} was not set in the environment of the script",
            why="Launchers set {name} for every rank. A script that is started with python, sudo or ssh, or in a "
            "container, may not have it.",
            fix="torchrun --standalone --nproc-per-node 4 train.py",
        ),
    )

    def examine_host(self, host: Host) -> Judgement:
        variables = {it: host.environ[it] for it in (*OF_ONE_RANK, *RENDEZVOUS) if host.environ.get(it)}
        malformed = [self._wrong([text], variables, name) for name, text in _malformed(variables)]
        if malformed:
            return malformed
        if contradictions := list(_contradictions(variables, host.environ, host.launch)):
            return self._wrong(contradictions, variables)
        left = [name for name in OF_ONE_RANK if name in variables]
        if not left:
            return Passed("no launch variable is left over in this shell")
        if origin := _origin(host.environ):
            return Passed(f"{', '.join(left)} {'belongs' if len(left) == 1 else 'belong'} to {origin}")
        values = ", ".join(f"{name}={int(variables[name])}" for name in left)
        return self.warn(
            f"{values} {'is' if len(left) == 1 else 'are'} exported in this shell, which no launcher started",
            fix=f"unset {' '.join(left)}; and remove the lines that export them from ~/.bashrc or the job script",
            evidence=_shown(variables),
            about=Kind.VARIABLE.of(*left),
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        values = ranks.values("variables")
        if wrong := list(contradictions_of_group(values)):
            return self.fail(
                wrong[0].text,
                fix="start the ranks with torchrun, and do not set RANK, WORLD_SIZE and similar variables in "
                "wrapper scripts or sitecustomize",
                evidence=tuple(wrong),
            )
        ranks_phrase = plural(len(values), "rank")
        return Passed(f"torchrun's variables are complete and agree with the group on {ranks_phrase}")

    def _wrong(self, wrong: list[str], variables: Mapping[str, str], *names: str) -> Finding:
        return self.fail(
            wrong[0],
            fix=f"unset {' '.join(variables)}; and remove the lines that export them from the job script or ~/.bashrc",
            evidence=(*(Evidence(text) for text in wrong[1:]), *_shown(variables)),
            about=Kind.VARIABLE.of(*names),
        )


def _shown(variables: Mapping[str, str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(show_variable(name, value)) for name, value in variables.items())


def _malformed(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in variables.items():
        if name == "MASTER_ADDR":
            continue
        if whole_number(value) is None:
            yield name, f"{show_variable(name, value)} is not a number"
        elif name == "MASTER_PORT" and not 0 <= int(value) <= 65535:
            yield name, f"MASTER_PORT={int(value)} is not between 0 and 65535"
        elif int(value) < int(name.endswith("WORLD_SIZE")):
            yield name, f"{name}={int(value)} is below {int(name.endswith('WORLD_SIZE'))}"


def _contradictions(values: Mapping[str, str], environ: Mapping[str, str], launch: Launch) -> Iterator[str]:
    number = {name: int(value) for name, value in values.items() if name != "MASTER_ADDR"}
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
        yield f"WORLD_SIZE={size} is exported, but this launch has {launch.world_size} ranks"
    if local is not None and local != launch.nproc:
        yield f"LOCAL_WORLD_SIZE={local} is exported, but this launch has {launch.nproc} ranks on this node"


def _against_slurm(number: Mapping[str, int], environ: Mapping[str, str]) -> Iterator[str]:
    """RANK may be that of the task or of the node, WORLD_SIZE any multiple of the nodes: GPUs are not tasks."""
    tasks, nodes = _number(environ, _SLURM.size[0]), _number(environ, _SLURM.nodes[0])
    size, rank = number.get("WORLD_SIZE"), number.get("RANK")
    if size is not None and nodes and size % nodes and size != tasks:
        yield f"WORLD_SIZE={size} contradicts Slurm's {nodes} nodes"
    process, node = _number(environ, _SLURM.rank[0]), _number(environ, _SLURM.node[0])
    in_step = _number(environ, _SLURM.step[0]) or 0
    if rank is not None and in_step > 1 and rank not in (process, node):
        yield f"RANK={rank} contradicts {_SLURM.rank[0]}={process}"


def _number(environ: Mapping[str, str], name: str) -> int | None:
    return whole_number(environ.get(name, ""))


def _launched(environ: Mapping[str, str]) -> str | None:
    """The launcher or batch system that started this process."""
    return next((launcher.name for launcher in LAUNCHERS if any(map(environ.get, launcher.marks))), None)


def _by_operator(environ: Mapping[str, str]) -> bool:
    return all(environ.get(name) for name in OPERATOR) and not environ.get("LOCAL_RANK")


def _origin(environ: Mapping[str, str]) -> str | None:
    """What set the variables for this process; None where they are left over."""
    if launcher := _launched(environ):
        return f"a job of {launcher}"
    return "a job whose operator sets them for each node" if _by_operator(environ) else None

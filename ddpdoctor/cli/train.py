"""``ddpdoctor train``: the bundled trainer under torchrun."""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ddpdoctor.job.launch import Ending
    from ddpdoctor.job.training import TrainingRun
    from ddpdoctor.plan import Plan

RUNS = Path("runs")
FAILED = 1
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Launch:
    """torchrun's options as they were given."""

    nproc: int | None
    nnodes: int
    node_rank: int
    master_addr: str | None
    master_port: int | None
    standalone: bool
    rendezvous: Mapping[str, str | None]


def train(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE...]", help="Settings, such as train.epochs=2 data.batch_size=16."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="NAME | FILE", help="A bundled configuration, or yours."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the bundled configurations.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the configuration and the distributed environment only.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="Train on this text, or this folder; data.source=PATH.")
    ] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc",
            "--nproc-per-node",
            metavar="N",
            help="Ranks on this node. [default: parallel.world_size, or its GPUs, or 2]",
        ),
    ] = None,
    nnodes: Annotated[int, typer.Option(metavar="N", help="Nodes; run the same command on each.")] = 1,
    node_rank: Annotated[
        int, typer.Option(metavar="N", help="This node's number, 0 for the one at --master-addr.")
    ] = 0,
    master_addr: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where node 0 is.")] = None,
    master_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Where ranks meet. [default: a free one; 29500 on nodes]"),
    ] = None,
    standalone: Annotated[bool, typer.Option("--standalone", help="Let torchrun find a port.")] = False,
    rdzv_backend: Annotated[str | None, typer.Option(metavar="NAME", help="torchrun's rendezvous.")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where it is.")] = None,
    rdzv_id: Annotated[str | None, typer.Option(metavar="ID", help="The job's name in it.")] = None,
    rdzv_conf: Annotated[str | None, typer.Option(metavar="KEY=VALUE,...", help="More of it.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> int:
    """Train with the bundled trainer, under torchrun; the run is kept in runs/.

    Exit status: 0 trained, 1 the run failed, 2 asked for what cannot be.
    """
    if list_:
        return _list()
    rendezvous = {"backend": rdzv_backend, "endpoint": rdzv_endpoint, "id": rdzv_id, "conf": rdzv_conf}
    launch = Launch(nproc, nnodes, node_rank, master_addr, master_port, standalone, rendezvous)
    settings = [*(words or ()), *([f"data.source={data}"] if data is not None else [])]
    return _train(_config_file(config), settings, launch, dry_run, quiet)


def _list() -> int:
    from ddpdoctor.job.training import about, bundled_configs

    configs = bundled_configs()
    width = max(map(len, configs), default=0)
    for name, path in configs.items():
        typer.echo(f"{name:<{width}}  {about(path)}")
    return 0


def _config_file(name: str | None) -> Path | None:
    """The file of this name, or the bundled configuration.

    Raises:
        UsageError: there is neither.
    """
    import difflib

    from ddpdoctor.cli.errors import UsageError
    from ddpdoctor.job.training import bundled_configs
    from ddpdoctor.redact import quote

    if name is None:
        return None
    configs = bundled_configs()
    bundled = configs.get(name.removesuffix(".yaml").replace("-", "_"))
    if Path(name).is_file() or (bundled is None and os.path.lexists(name)):
        return Path(name)
    if bundled:
        return bundled
    near = difflib.get_close_matches(name, configs, n=3)
    hint = f"near it: {', '.join(near)}" if near else "`ddpdoctor train --list` lists the bundled ones"
    raise UsageError(f"--config {quote(name)} is neither a file nor a bundled configuration; {hint}")


def _train(file: Path | None, settings: list[str], launch: Launch, dry_run: bool, quiet: bool) -> int:
    from ddpdoctor.cli.errors import INTERRUPTED, UsageError
    from ddpdoctor.cli.signals import stopped_by_signals
    from ddpdoctor.job.training import BadConfiguration, TrainingRun, read_config
    from ddpdoctor.runs.stopped import note_stopped

    try:
        resolved = read_config(file, settings)
    except BadConfiguration as bad:
        raise UsageError(str(bad)) from None
    plan = _plan(launch, resolved)
    words = ["--config", str(file.absolute())] if file else []
    words += ["--dry-run", *settings] if dry_run else settings
    made = _new_folder(resolved["run"]["name"]) if _needs_folder(resolved, plan, dry_run) else None
    folder = resolved["run"]["folder"] or made
    words += [f"run.folder={made}"] if made else []
    scratch = Path(tempfile.mkdtemp(prefix="ddpdoctor-"))
    try:
        with stopped_by_signals():
            run = TrainingRun(words, plan, scratch)
            try:
                ending = _watch(run, Path(folder) if folder else None, quiet or dry_run)
            finally:
                run.stop()
        return _end(run, ending, folder)
    except KeyboardInterrupt:
        if folder:
            note_stopped(Path(folder))
        print(f"ddpdoctor: stopped; nothing of it is left running{_where(folder)}", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if made and not any(made.iterdir()):
            made.rmdir()


def _watch(run: TrainingRun, folder: Path | None, quiet: bool) -> Ending:
    """Show what the run does until it ends."""
    from ddpdoctor.cli.training_bar import TrainingBar
    from ddpdoctor.job.output import Output
    from ddpdoctor.runs.follow import Follower

    follower = Follower(folder) if folder else None
    with TrainingBar(quiet) as bar:
        output = Output(run.streams, bar.sink(sys.stdout), bar.sink(sys.stderr))
        try:
            while (ending := run.wait(_LOOK_SECONDS)) is None:
                _show(follower, bar)
            _show(follower, bar)
            return ending
        finally:
            run.stop()
            output.finish()


def _show(follower: Any, bar: Any) -> None:
    position = follower.look() if follower else None
    if position:
        bar.show(position)


def _end(run: TrainingRun, ending: Ending, folder: str | Path | None) -> int:
    from ddpdoctor.job.training import REFUSED

    if ending.status == 0:
        return 0
    failure = run.failure(ending.status)
    if failure.refused:
        return REFUSED
    print(f"ddpdoctor: error: {failure.text}{_where(folder)}", file=sys.stderr)
    return FAILED


def _where(folder: str | Path | None) -> str:
    return f"; the run is in {folder}" if folder and any(Path(folder).glob("*")) else ""


def _needs_folder(resolved: Mapping[str, Any], plan: Plan, dry_run: bool) -> bool:
    """Whether the run's folder is ours to make; over several nodes rank 0 makes it, which may be elsewhere."""
    return not dry_run and plan.nnodes == 1 and not resolved["run"]["folder"]


def _new_folder(name: str) -> Path:
    """A folder that no other run has.

    Raises:
        UsageError: it cannot be made.
    """
    from ddpdoctor.cli.errors import UsageError

    begun = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    for number in range(1, 1000):
        folder = RUNS / (f"{begun}-{safe}" + (f"-{number}" if number > 1 else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as failed:
            raise UsageError(f"{folder} cannot be made: {failed.strerror}") from None
        return folder
    raise UsageError(f"{RUNS} has a thousand runs of this second")


def _plan(launch: Launch, resolved: Mapping[str, Any]) -> Plan:
    from ddpdoctor.cli.errors import UsageError
    from ddpdoctor.cli.request import verify_nproc
    from ddpdoctor.host import Host
    from ddpdoctor.plan import DEFAULT_MASTER_PORT, Plan

    parallel = resolved["parallel"]
    if launch.nnodes < 1 or not 0 <= launch.node_rank < launch.nnodes:
        raise UsageError(f"--node-rank {launch.node_rank} is not a node of --nnodes {launch.nnodes}")
    # What a configuration does not say is its default, by which nobody asked for anything.
    address = launch.master_addr or (
        parallel["master_addr"] if parallel["master_addr"] != "127.0.0.1" else None
    )
    port = launch.master_port or parallel["master_port"] or None
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"--master-port {port} is not between 1 and 65535")
    given = tuple((name, value) for name, value in launch.rendezvous.items() if value is not None)
    if launch.nnodes > 1 and address is None and not given:
        raise UsageError("--nnodes above 1 needs --master-addr, the same on every node, or --rdzv-endpoint")
    host = Host(Plan())
    return Plan(
        nproc=verify_nproc(_nproc(launch, parallel, host), host),
        nnodes=launch.nnodes,
        node_rank=launch.node_rank,
        master_addr=address or "127.0.0.1",
        master_port=port or DEFAULT_MASTER_PORT,
        rendezvous=given,
        standalone=launch.standalone,
        explicit=frozenset(
            name for name, value in (("master_addr", address), ("master_port", port)) if value
        ),
    )


def _nproc(launch: Launch, parallel: Mapping[str, Any], host: Any) -> int:
    """The ranks of this node: as asked for, or this node's part of the configuration's, or one for each GPU, or 2."""
    from ddpdoctor.cli.errors import UsageError
    from ddpdoctor.host.gpus import DEFAULT_NPROC, default_nproc

    if launch.nproc is not None:
        return launch.nproc
    world_size = parallel["world_size"]
    if world_size is None:
        return DEFAULT_NPROC if parallel["device"] == "cpu" else default_nproc(host)
    if world_size % launch.nnodes:
        raise UsageError(f"parallel.world_size {world_size} does not divide among {launch.nnodes} nodes")
    return int(world_size) // launch.nnodes

"""``ddpdoctor train``: the bundled trainer under torchrun, in a run folder of its own."""

import datetime
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpdoctor.cli.errors import INTERRUPTED, UsageError, print_error
from ddpdoctor.cli.launch_from_options import launch_of
from ddpdoctor.cli.options import TrainOptions
from ddpdoctor.cli.report_output import write_out
from ddpdoctor.cli.temporary import temporary_folder
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import DEFAULT_NPROC
from ddpdoctor.job.guard import Ending
from ddpdoctor.job.output_forwarding import Output
from ddpdoctor.job.trainer import REFUSED, BadConfiguration, TrainingRun, about, bundled_configs, read_config
from ddpdoctor.launch import Launch
from ddpdoctor.redact import quote
from ddpdoctor.runs.run_reader import note_end
from ddpdoctor.text import did_you_mean

RUNS = Path("runs")
FAILED = 1
_LOOK_SECONDS = 0.1


def run_train(options: TrainOptions) -> int:
    """Train, or list the configurations, and return the exit status; UsageError where an option or a setting asks for
    what cannot be."""
    if options.list_configs:
        return _list()
    data = [f"data.source={options.data}"] if options.data is not None else []
    settings = [*(options.settings or ()), *data]
    return _train(_config_file(options.config), settings, options)


def _list() -> int:
    configs = bundled_configs()
    width = max(map(len, configs), default=0)
    for name, path in configs.items():
        write_out(f"{name:<{width}}  {about(path)}\n")
    return 0


def _config_file(name: str | None) -> Path | None:
    """The file of this name, or the bundled configuration; UsageError where there is neither."""
    if name is None:
        return None
    configs = bundled_configs()
    bundled = configs.get(name.removesuffix(".yaml").replace("-", "_"))
    if Path(name).is_file() or (bundled is None and os.path.lexists(name)):
        return Path(name)
    if bundled:
        return bundled
    hint = did_you_mean(name, configs, "`ddpdoctor train --list` lists the bundled ones")
    raise UsageError(f"--config {quote(name)} is neither a file nor a bundled configuration; {hint}")


def _train(file: Path | None, settings: list[str], options: TrainOptions) -> int:
    try:
        resolved = read_config(file, settings)
    except BadConfiguration as bad:
        raise UsageError(str(bad)) from None
    launch, dry_run = launch_of_training(options, resolved["parallel"]), options.dry_run
    words = ["--config", str(file.absolute())] if file else []
    words += ["--dry-run", *settings] if dry_run else settings
    temporary = temporary_folder()
    # Over several nodes rank 0 makes it, which may be elsewhere.
    is_ours = not dry_run and launch.nnodes == 1 and not resolved["run"]["folder"]
    made = _new_folder(resolved["run"]["name"]) if is_ours else None
    folder = resolved["run"]["folder"] or made
    words += [f"run.folder={made}"] if made else []
    scratch = Path(tempfile.mkdtemp(prefix="ddpdoctor-", dir=temporary))
    try:
        run = TrainingRun(words, launch, scratch)
        try:
            ending = _watch(run)
        finally:
            run.stop()
        return _end(run, ending, folder)
    except KeyboardInterrupt:
        if folder:
            note_end(Path(folder), "stopped")
        print(f"ddpdoctor: stopped; no process of it is left running{_where(folder)}", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if made and not any(made.iterdir()):
            made.rmdir()


def _watch(run: TrainingRun) -> Ending:
    """Pass on what the run prints, until it ends."""
    output = Output(run.streams, sys.stdout.buffer, sys.stderr.buffer)
    try:
        while (ending := run.wait(_LOOK_SECONDS)) is None:
            pass
        return ending
    finally:
        run.stop()
        output.finish()


def _end(run: TrainingRun, ending: Ending, folder: str | Path | None) -> int:
    if ending.status == 0:
        return 0
    failure = run.failure(ending.status)
    if failure.refused:
        return REFUSED
    if folder:
        note_end(Path(folder), f"failed: {failure.text}")
    print_error(f"{failure.text}{_where(folder)}")
    return FAILED


def _where(folder: str | Path | None) -> str:
    return f"; the run is in {folder}" if folder and any(Path(folder).glob("*")) else ""


def _new_folder(name: str) -> Path:
    """A folder that no other run has; UsageError where it cannot be made."""
    begun = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    for count in range(1, 1000):
        folder = RUNS / (f"{begun}-{safe}" + (f"-{count}" if count > 1 else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as failed:
            raise UsageError(f"{folder} cannot be created: {failed.strerror}") from None
        return folder
    raise UsageError(f"{RUNS} has a thousand runs of this second")


def launch_of_training(options: TrainOptions, configured: Mapping[str, Any]) -> Launch:
    """The launch: what the command line leaves open is as configured, in the section ``parallel``; UsageError where it
    cannot be."""
    nproc = _nproc(options, configured) if options.nproc is None else options.nproc
    options = replace(options, nproc=nproc, node_rank=options.node_rank or 0)
    return launch_of(options, Host(Launch()))


def _nproc(options: TrainOptions, configured: Mapping[str, Any]) -> int | None:
    """This node's part of the ranks that are configured; None for as many as it has GPUs."""
    if (world_size := configured["world_size"]) is None:
        return DEFAULT_NPROC if configured["device"] == "cpu" else None
    if world_size % options.nnodes:
        raise UsageError(f"parallel.world_size {world_size} is not a multiple of --nnodes {options.nnodes}")
    return int(world_size) // options.nnodes

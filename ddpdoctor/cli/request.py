"""What ``check`` and ``watch`` are to examine: options, configuration, and the words of the command line, which name a
script, a module or a launch line; refused in one line where it cannot be."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.cli.config import read_config
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.launch_from_options import imagined_of, launch_of, with_port_of_line
from ddpdoctor.cli.launchers import with_launcher
from ddpdoctor.cli.option import LONGEST
from ddpdoctor.cli.options import LINE, CheckOptions, JobOptions
from ddpdoctor.cli.temporary import temporary_folder
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import default_backend
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.redact import quote
from ddpdoctor.silence import Silencer
from ddpdoctor.text import LONGEST_COMMAND, quote_command

if TYPE_CHECKING:
    from ddpdoctor.job.run import Follow

TIMEOUT = 300.0
"""Seconds for the whole check where nobody says otherwise."""
JOB_FOLDER = "job"
"""The folder of the job, inside the run folder."""
_ABOUT_PATCHES = ("apply", "diff", "force")
_ABOUT_A_SCRIPT = (
    *("budget", "batches", "full", "time_limit", "hang_after"),
    *("rehearse", "world_size", "keep_files", "no_run"),
)


@dataclass(frozen=True)
class Request:
    """What is to be examined."""

    options: CheckOptions
    """As they were given, or configured where they were not."""
    host: Host
    """With the launch."""
    job: Job | None = None
    """The user's; None for the bundled trainer."""
    earlier: tuple[Path, ...] = ()
    """The job folders of an earlier run, one for each host, which are judged again; nothing is run then."""
    silencer: Silencer = field(default_factory=Silencer)
    follow: Follow | None = None
    """Passes the output of the user's job on."""

    @property
    def fail_on(self) -> Level:
        """The least level that makes the exit status 1."""
        return self.options.fail_on or Level.WARN

    def checks(self, source: Source) -> tuple[Check, ...]:
        """The checks wanted of one source; what a script prints (``Source.LOG``) belongs to its run."""
        run, log = Source.RUN.value, Source.LOG.value
        selected, ignored = (
            tuple(log if source is Source.LOG and selector == run else selector for selector in given)
            for given in (selectors(self.options.select), selectors(self.options.ignore))
        )
        return registry.select(source, selected, ignored)


def selectors(given: list[str] | None) -> tuple[str, ...]:
    """``["DD1,DD2", "host"]`` as ``("DD1", "DD2", "host")``."""
    return tuple(selector.strip() for text in given or () for selector in text.split(",") if selector.strip())


def request_of(options: CheckOptions) -> Request:
    """What is to be examined; UsageError where an option asks for what cannot be."""
    config = read_config(Path.cwd())
    options = config.fill(options)
    if not (options.world_size or options.trace):  # which are of this host alone
        options = with_launcher(options, os.environ)
    try:
        registry.verify_selectors((*selectors(options.select), *selectors(options.ignore)))
    except registry.UnknownSelector as unknown:
        raise UsageError(str(unknown)) from None
    if not options.fix:
        _refuse(options, _ABOUT_PATCHES, "--fix", "--fix ")
    host = Host(Launch())
    host = host.with_launch(_launch(options, host))
    # With --trace the words are further folders.
    job = None if options.trace else job_of(options, _recorder(options))
    if options.no_run:
        _verify_sources(options)
    if job is not None and not options.keep_files:
        job = replace(job, private=True)
    if job is None:
        _refuse(options, _ABOUT_A_SCRIPT, "a script")
    return Request(
        options,
        host,
        job,
        _earlier(options),
        Silencer(Path.cwd(), config.folder, config.per_file_ignores),
    )


def _launch(options: CheckOptions, host: Host) -> Launch:
    imagined = imagined_of(options)
    launch = launch_of(replace(options, nproc=len(imagined.ranks)) if imagined else options, host)
    chosen = options.backend or ("gloo" if options.rehearse else default_backend(host, launch.nproc))
    # What the job may take is its own matter where its length was asked for.
    usual = LONGEST if options.full or options.time_limit or options.budget else TIMEOUT
    by_line = kind_of(options) is JobKind.LINE
    if by_line and launch.nnodes == 1:
        launch = with_port_of_line(launch, options.words or [])
    return replace(
        launch,
        rendezvous=() if _numbered_by_us(launch) else launch.rendezvous,
        imagined=imagined,
        backend=chosen.lower(),
        checkpoint_dir=_checkpoint_dir(options),
        timeout=options.timeout or usual,
        explicit=launch.explicit | ({"backend"} if options.backend else set()),
        by_launch_line=by_line,
    )


def _numbered_by_us(launch: Launch) -> bool:
    """Whether torchrun gets the numbers that the hosts have when they met, which c10d would give in another order."""
    several = launch.nnodes > 1 and not launch.spare_nodes
    return several and dict(launch.rendezvous).get("backend", "static") in ("c10d", "static")


def _recorder(options: CheckOptions) -> RecorderOptions:
    usual = RecorderOptions()
    return RecorderOptions(
        batches=options.batches or usual.batches,
        budget=options.budget or usual.budget,
        full=options.full,
        time_limit=options.time_limit or usual.time_limit,
        rehearse=options.rehearse,
    )


def _verify_sources(options: CheckOptions) -> None:
    """Refuse what is no source: with --no-run, all words are scripts."""
    if kind_of(options) is not JobKind.SCRIPT:
        raise UsageError("--no-run reads scripts: ddpdoctor check --no-run train.py")
    for script in (options.words or [])[1:]:
        job_of(replace(options, words=[script]), _recorder(options))


def _refuse(options: CheckOptions, names: Sequence[str], lacks: str, more: str = "") -> None:
    """Refuse options that ask for nothing without something else."""
    for name in (f"--{field_name.replace('_', '-')}" for field_name in names if getattr(options, field_name)):
        raise UsageError(f"{name} requires {lacks}: ddpdoctor check {more}{name} train.py")


def _earlier(options: CheckOptions) -> tuple[Path, ...]:
    if options.trace is None:
        return ()
    from ddpdoctor.job.several_hosts import without_copies

    given = [_job_folders(name) for name in (options.trace, *(options.words or ()))]
    return without_copies([own for own, *_ in given], [copy for _, *copies in given for copy in copies])


def _job_folders(name: str) -> tuple[Path, ...]:
    """The job folders of all hosts that a folder holds."""
    from ddpdoctor.job.job_folder import read_job  # which an earlier run alone needs
    from ddpdoctor.job.several_hosts import job_folders

    folder = Path(name)
    for place in (folder / JOB_FOLDER, folder):
        try:
            if read_job(place):
                return job_folders(folder, place)
        except (KeyError, TypeError, ValueError, OSError):
            break
    raise UsageError(f"{quote(name)} is not a run folder that ddpdoctor kept")


def _checkpoint_dir(options: CheckOptions) -> str:
    temporary = temporary_folder()
    folder = options.checkpoint_dir or temporary
    if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112 - Path's raise on long names
        raise UsageError(f"--checkpoint-dir {quote(folder)} is a file, not a folder")
    return str(Path(folder).absolute())


def kind_of(options: JobOptions) -> JobKind:
    """What the words are."""
    if options.words and options.words[0] == LINE:
        return JobKind.LINE
    return JobKind.MODULE if options.module else JobKind.SCRIPT


def job_of(options: JobOptions, recorder: RecorderOptions) -> Job | None:
    """The job that is asked for; None where none is, UsageError where it is not there, or is not Python."""
    kind = kind_of(options)
    words = tuple(options.words or ())[kind is JobKind.LINE :]
    if kind is JobKind.MODULE:
        _verify_module(words)
    elif words and kind is JobKind.LINE:
        _verify_line(words)
    elif words:
        _verify_script(words)
    return Job(kind, words, recorder) if words else None


def _verify_module(words: tuple[str, ...]) -> None:
    if not words:
        raise UsageError("-m requires the name of a module")
    top = words[0].partition(".")[0]
    # Only the outermost package is looked for: finding what is in it would import it.
    if importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None:
        raise UsageError(f"-m {words[0]}: no module named {quote(top)}")


def _verify_line(words: tuple[str, ...]) -> None:
    program = words[0]
    if shutil.which(program) is None:
        hint = f"; for a script, leave out --: ddpdoctor check {program}" if program.endswith(".py") else ""
        raise UsageError(f"{quote(program)}: command not found{hint}")


def _verify_script(words: tuple[str, ...]) -> None:
    script = Path(words[0])
    if not os.path.lexists(script):
        line = quote_command(["--", *words], LONGEST_COMMAND)
        hint = f"; for a launch line, put -- before it: {line}" if shutil.which(words[0]) else ""
        raise UsageError(f"{quote(words[0])} does not exist{hint}")
    if script.is_dir():
        if not (script / "__main__.py").exists():
            raise UsageError(f"{quote(words[0])} is a folder without a __main__.py")
        return
    if not script.is_file():
        raise UsageError(f"{quote(words[0])} is not a regular file")
    if not _may_be_python(script):
        program = "bash" if script.suffix in (".sh", ".bash", ".slurm", ".sbatch") else "PROGRAM"
        line = quote_command(["ddpdoctor", "check", "--", program, *words], LONGEST_COMMAND)
        raise UsageError(f"{quote(words[0])} is not a Python script; for any other command, use --: {line}")


def _may_be_python(script: Path) -> bool:
    """Whether it reads as Python; what is named .py is taken for it, and an error in it is its own to tell."""
    try:
        with tokenize.open(script) as opened:
            text = opened.read()
    except (SyntaxError, UnicodeDecodeError):
        return False
    except OSError as failed:
        raise UsageError(f"{quote(str(script))} cannot be read: {failed.strerror}") from None
    if "\0" in text:
        return False
    if script.suffix in (".py", ".pyw"):
        return True
    try:
        compile(text, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True

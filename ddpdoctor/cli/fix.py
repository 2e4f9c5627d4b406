"""``ddpdoctor fix`` and ``check --fix``: patches for findings, verified on a copy, shown, kept and applied."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor import registry
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.examination import examine
from ddpdoctor.cli.options import CheckOptions, FixOptions
from ddpdoctor.cli.report_output import ReportOutput, open_output, writing
from ddpdoctor.cli.request import JOB_FOLDER, Request, request_of, selectors
from ddpdoctor.cli.run_judging import RunJudging
from ddpdoctor.files import in_place_of
from ddpdoctor.fix.changed_copy import ChangedCopy, Refused, why_not_restorable, write_all
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import began_at, is_as_it_ran, read_job, read_trace, working_directory
from ddpdoctor.job.run import JobRun, RunPolicy
from ddpdoctor.launch import Launch
from ddpdoctor.model import Finding, Report
from ddpdoctor.progress import Progress
from ddpdoctor.redact import quote
from ddpdoctor.text import plural

if TYPE_CHECKING:  # imported where a patch is made
    from ddpdoctor.fix.verdict import Ran
    from ddpdoctor.fix.verify import Result


def run_fix(options: FixOptions) -> int:
    """Judge a run that was kept, verify patches for what is found, and return the exit status of ``check``; UsageError
    where the folder is no run's, or an option asks for what cannot be."""
    wanted = CheckOptions(
        **{name: getattr(options, name) for name in _SHARED},
        trace=options.run_folder,
        fix=True,
        timeout=options.timeout,
    )
    request, output = request_of(wanted), ReportOutput(wanted)
    fixing = Fixing(request)
    with Progress(quiet=wanted.quiet) as progress:
        report = fixing.patched(examine(fixing.examined, progress), progress)
    output.write(report)
    return report.exit_status


_SHARED = ("select", "ignore", "format", "output", "verbose", "fail_on", "quiet", "apply", "diff", "force")


class Fixing:
    """Verifies patches for what an examination found in a script, and writes them where that is asked for; UsageError
    where nothing is run that could be patched."""

    def __init__(self, request: Request) -> None:
        options = request.options
        if len(request.earlier) > 1:
            raise UsageError("patches are verified on one host, and this job ran on several")
        if options.nnodes > 1:
            raise UsageError("--fix runs copies of the script on one host: leave out --nnodes")
        if request.job is None and not request.earlier:
            raise UsageError("--fix requires a script: ddpdoctor check --fix train.py")
        if options.apply and not options.force:
            _refuse_unsaved(request)
        self._request = request
        self.examined = replace(request, options=replace(options, keep=True))
        """The request, with the run folder kept: it says what the run was."""
        self._diff = open_output(options.diff, "--diff")

    def patched(self, report: Report, progress: Progress) -> Report:
        """The report with the patches of its findings; what was asked for is written."""
        folder = next(iter(self._request.earlier), None) or self._folder_of(report)
        if folder is None or not report.findings:
            return self._finished(report, None, folder)
        began = time.monotonic()
        result = _Verification(self._request, folder, progress).result(report.findings)
        progress.hide()
        report = replace(report, findings=result.findings, seconds=report.seconds + time.monotonic() - began)
        return self._finished(report, result, folder)

    def _let_go(self, report: Report) -> Report:
        """Remove the run folder where it was kept only for the patches."""
        if not (folder := report.run.get("folder")) or report.exit_status or self._request.options.keep:
            return report
        shutil.rmtree(folder, ignore_errors=True)
        return replace(report, run={**report.run, "folder": None})

    def _folder_of(self, report: Report) -> Path | None:
        kept = report.run.get("folder")
        folder = Path(kept) / JOB_FOLDER if kept else None
        return folder if folder and folder.is_dir() else None

    def _finished(self, report: Report, result: Result | None, folder: Path | None) -> Report:
        return self._let_go(replace(report, notes=(*report.notes, *self._written(result, folder))))

    def _written(self, result: Result | None, folder: Path | None) -> Iterator[str]:
        """Keep the diff, apply it, and say so."""
        options = self._request.options
        texts = result.texts if result else {}
        if self._diff is not None:
            diff = ""
            if texts and folder:
                from ddpdoctor.fix.verify import total_diff

                diff = total_diff(working_directory(folder), texts)
            with writing(self._diff, "--diff"), in_place_of(self._diff) as draft:
                draft.write_bytes(diff.encode("utf-8", errors="surrogateescape"))
            if not diff and self._diff.is_file():
                self._diff.unlink()
            kept = "the verified patches are in" if diff else "no patch was verified, so there is no"
            yield f"--diff: {kept} {options.diff}"
        if options.apply and result and folder:
            yield self._applied(result, folder)
        elif options.apply:
            yield "--apply: nothing to write"

    def _applied(self, result: Result, folder: Path) -> str:
        if not result.texts:
            return "--apply: nothing was written, since no patch was verified"
        before = {path: path.read_bytes() for path in result.texts}
        stale = [path for path in result.texts if not is_as_it_ran(folder, path)]
        try:
            if stale:
                raise Refused(f"{quote(str(stale[0]))} changed since the run")
            write_all(result.texts, before, force=self._request.options.force)
        except Refused as refused:
            return f"--apply: nothing was written: {refused}"
        names = ", ".join(sorted(path.name for path in result.texts))
        return f"--apply: wrote {plural(len(result.texts), 'file')}: {names}"


def _refuse_unsaved(request: Request) -> None:
    """Refuse, by a UsageError, a script before its run that could not be given back as it is after the patches were
    written: it has changes that are not committed, or is not tracked."""
    if (job := request.job) is not None and job.kind is JobKind.SCRIPT and job.words:
        script = Path(job.words[0]).absolute()
        if script.is_file() and (why := why_not_restorable(script)):
            raise UsageError(f"--apply: {quote(job.words[0])} {why}, or use --force")


@dataclass
class _Verification:
    """Runs of changed copies of one job."""

    request: Request
    folder: Path
    """The job's, of the run in which the findings were found."""
    progress: Progress

    def __post_init__(self) -> None:
        recorded = read_job(self.folder)
        assert recorded is not None, f"{self.folder} is no job's"
        self.job, self.launch = recorded
        self.working = working_directory(self.folder)
        self.since = began_at(self.folder)

    def result(self, findings: tuple[Finding, ...]) -> Result:
        """The findings with their patches."""
        from ddpdoctor.fix.verdict import Ran, training_job
        from ddpdoctor.fix.verify import Verifier

        before = Ran(training_job(read_trace(self.folder)), findings)
        return Verifier(
            before,
            self.working,
            self._run,
            as_it_ran=partial(is_as_it_ran, self.folder),
            asked=_codes(self.request.options.select),
            tell=self.progress.stage,
        ).result()

    def _run(self, texts: Mapping[Path, bytes]) -> Ran:
        """Run the job with these files in place of the user's, and judge it."""
        from ddpdoctor.fix.verdict import Ran, training_job

        with self._copy(texts) as (shadow, job, place):
            folder = place / JOB_FOLDER
            self._finish(job, self.launch, folder, place)
            judging = RunJudging(self._request_inside(job, shadow), place)
            trace = read_trace(folder)
            judging.judge_run(trace, [folder])
            findings = tuple(_real(finding, shadow) for finding in judging.compose().findings)
        return Ran(training_job(trace), findings, shadow.real)

    @contextmanager
    def _copy(self, texts: Mapping[Path, bytes]) -> Iterator[tuple[ChangedCopy, Job, Path]]:
        """Be in a copy with these files in place of the user's: the copy, its job and a folder for the run."""
        with (
            tempfile.TemporaryDirectory(prefix="ddpdoctor-") as place,
            ChangedCopy(self.working, self.since, texts) as shadow,
        ):
            (Path(place) / JOB_FOLDER).mkdir()
            job = replace(self.job, words=tuple(_shadowed(word, shadow) for word in self.job.words))
            with _inside(shadow):
                yield shadow, job, Path(place)

    def _finish(self, job: Job, launch: Launch, folder: Path, place: Path) -> None:
        options, torch = self.request.options, self.request.host.torch_version
        policy = RunPolicy(options.hang_after)
        run = JobRun(job, launch, folder, torch=torch, if_orphaned=[place], policy=policy)
        try:
            run.finish(time.monotonic() + self.request.host.launch.timeout)
        finally:
            run.stop()

    def _request_inside(self, job: Job, shadow: ChangedCopy) -> Request:
        silencer = replace(self.request.silencer, working=shadow.working)
        return replace(self.request, job=job, earlier=(), follow=None, silencer=silencer)


def _codes(select: list[str] | None) -> frozenset[str]:
    """The checks that were asked for one by one, and not by a family or the beginning of a code."""
    given = {selector.lower() for selector in selectors(select)}
    checks = registry.all_checks()
    return frozenset(it.code for it in checks if not given.isdisjoint((it.code.lower(), it.name)))


def _shadowed(word: str, shadow: ChangedCopy) -> str:
    """A word of the command, which names the copy where it names a script of the user's by its full path."""
    path = Path(word)
    is_there = path.is_absolute() and path.suffix == ".py" and shadow.at(path).exists()
    return str(shadow.at(path)) if is_there else word


@contextmanager
def _inside(shadow: ChangedCopy) -> Iterator[None]:
    """Be in the copy's working directory; Python finds the copy's modules before others."""
    back, variable = Path.cwd(), os.environ.get("PYTHONPATH")
    entries = [
        str(shadow.at(Path(entry)))
        for entry in (variable or "").split(os.pathsep)
        if entry and Path(entry).is_absolute()
    ]
    copies = [entry for entry in entries if Path(entry).is_dir()]
    roots = dict.fromkeys(str(shadow.at(_import_root(path))) for path in shadow.changed)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*roots, *copies, variable]))
    os.chdir(shadow.working)
    try:
        yield
    finally:
        os.chdir(back)
        if variable is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = variable


def _import_root(path: Path) -> Path:
    """The folder from which a file is imported: the one above its outermost package."""
    folder = path.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def _real(finding: Finding, shadow: ChangedCopy) -> Finding:
    """A finding of the copy, with the user's files in the place of the copy's."""
    where = replace(finding.where, file=shadow.real(finding.where.file)) if finding.where else None
    about = tuple(replace(subject, name=shadow.real(subject.name)) for subject in finding.about)
    return replace(finding, where=where, about=about)

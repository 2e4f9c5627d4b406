"""Verifies patches for a script whose ranks are forked, which takes seconds and not a launch for each run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ddpdoctor.fix.verdict import Ran
from ddpdoctor.fix.verify import Result, Verifier
from ddpdoctor.model import Finding
from tests.support.forked import needs_gpus, run_alone, run_forked, starts_ranks_itself

HANG_SECONDS = 10.0
SECONDS = 100.0


def patched(script: Path, folder: Path, nproc: int = 3, asked: Collection[str] = ()) -> Result:
    """The findings in a script, with their patches.

    Args:
        folder: absent or empty; everything that is written goes there.
        asked: codes that get a patch for information, too.
    """
    project = folder / "project"
    project.mkdir(parents=True)
    (project / script.name).write_bytes(script.read_bytes())
    runs = iter(range(100))

    def run(texts: Mapping[Path, bytes]) -> Ran:
        copy = folder / f"copy-{next(runs)}"
        copy.mkdir()
        for path, raw in {project / script.name: script.read_bytes(), **texts}.items():
            (copy / path.name).write_bytes(raw)
        return ran(copy / script.name, folder / f"{copy.name}-ran", project, nproc)

    before = ran(project / script.name, folder / "ran", project, nproc)
    return Verifier(before, project, run, asked=asked).result()


def ran(script: Path, folder: Path, project: Path, nproc: int) -> Ran:
    """A run of a script, with the files of the project in the place of the copy's."""
    if starts_ranks_itself(script):
        done = run_alone(script, folder, str(nproc), seconds=SECONDS)
    else:
        rehearse = needs_gpus(script)
        done = run_forked(
            script, folder, nproc=nproc, rehearse=rehearse, hang_after=HANG_SECONDS, seconds=SECONDS
        )
    texts = {str(script.parent): str(project), str(done.folder): str(project / "work")}

    def real(text: str) -> str:
        for copy, own in texts.items():
            text = text.replace(copy, own)
        return text

    return Ran(done.trace, tuple(_named(finding, real) for finding in done.findings), real)


def _named(finding: Finding, real: Callable[[str], str]) -> Finding:
    where = replace(finding.where, file=real(finding.where.file)) if finding.where else None
    about = tuple(replace(subject, name=real(subject.name)) for subject in finding.about)
    return replace(finding, where=where, about=about)

"""``check --no-run``: scripts judged by their source alone, for editors, and so without importing what runs a job."""

from pathlib import Path

from ddpdoctor.cli.judging import Judging
from ddpdoctor.cli.request import Request
from ddpdoctor.cli.run_folder import RunFolder
from ddpdoctor.model import Finding, Report
from ddpdoctor.program import Program
from ddpdoctor.trace import Trace
from ddpdoctor.unreached.lines import UnreachedLines


def examine_sources(request: Request) -> Report:
    """Judge the scripts that are named; nothing is run."""
    with RunFolder(request) as folder:
        return folder.keep(_SourceJudging(request, folder.path).report())


class _SourceJudging(Judging):
    def report(self) -> Report:
        """Judge script after script."""
        scripts = self.request.options.words or ()
        self.run |= {"nproc": 0, "backend": None, "script": " ".join(scripts)}
        self.notes.append("nothing was run: only what follows from the source is judged")
        for script in scripts:
            lines = UnreachedLines(Program.of(script))
            self.judge_lines(lines)
            self.unfinished = lines.too_many or self.unfinished
        return self.compose()

    def in_own_words(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings with fixes in the words of the scripts."""
        if not findings:
            return findings
        from ddpdoctor.fix.propose import in_own_words

        return in_own_words(findings, Trace(()), Path.cwd(), lambda _: True)

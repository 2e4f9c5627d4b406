"""Finds for each finding the patch that cures it: proposes, applies to a copy, runs the copy, and judges the run."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Project
from ddpdoctor.fix.edits import Edit, Text, changed_lines, moved_lines, unified_diff
from ddpdoctor.fix.patches import patch_names
from ddpdoctor.fix.propose import Proposal, proposals
from ddpdoctor.fix.verdict import Moved, Ran, Verdict, judge, key_of
from ddpdoctor.model import Change, Finding, Level, Patch

Texts = Mapping[Path, bytes]
Run = Callable[[Texts], Ran]
"""Runs the job on a copy in which these files have this content."""
MOST_RUNS = 12
"""Runs of changed copies, each as long as the check itself."""
_ROUNDS = 3
"""How often a patch is extended by another, for what it brings to light."""
_NOT_RUN = "it was not tried: too many patches"


@dataclass(frozen=True)
class Result:
    """What came of the findings of a run."""

    findings: tuple[Finding, ...]
    """The same, those that a patch may cure with their patch, and the other problems with why they have none."""
    texts: Texts
    """The files that change, with all verified patches together."""


@dataclass(frozen=True)
class _State:
    """The user's files with some patches, and what was found in them."""

    texts: Texts
    ran: Ran


class Verifier:
    """Verifies patches for the findings of a run.

    Args:
        folder: the working directory of the run.
        as_it_ran: whether a file has the content that it had in the run.
        asked: the codes of the checks that were asked for: these get a patch for information, too.
        tell: is told in a clause what is done.
    """

    def __init__(
        self,
        before: Ran,
        folder: Path,
        run: Run,
        *,
        as_it_ran: Callable[[Path], bool] = lambda _: True,
        asked: Collection[str] = (),
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._before, self._folder, self._run, self._tell = before, folder, run, tell
        self._as_it_ran, self._asked = as_it_ran, asked
        self._state = _State({}, before)
        self._patches: dict[int, Patch] = {}
        self._runs = 0
        self._reasons: dict[int, str] = {}

    def result(self) -> Result:
        """Each finding with the first patch that is verified; else with the first, as a sketch."""
        findings = [finding for finding in self._before.findings if self._is_to_patch(finding)]
        self._all_together(findings)
        for finding in findings:
            if id(finding) not in self._patches:
                self._one(finding)
        return Result(tuple(map(self._patched, self._before.findings)), self._state.texts)

    def _patched(self, finding: Finding) -> Finding:
        patch = self._patches.get(id(finding))
        why = None if patch else self._reasons.get(id(finding))
        return replace(finding, patch=patch, unpatched=why)

    def _is_to_patch(self, finding: Finding) -> bool:
        """Whether it is a problem at a line of the script that a patch may cure. Information alone changes no file."""
        if finding.level is Level.INFO and finding.code not in self._asked:
            return False
        # What is read in the output names no line where no exception told it.
        if finding.where is None and finding.sighting is None:
            self._reasons[id(finding)] = "it is at no line of the script"
        elif not patch_names(finding.code):
            self._reasons[id(finding)] = "no change of a few lines is known to cure it"
        return id(finding) not in self._reasons

    def _all_together(self, findings: Sequence[Finding]) -> None:
        """Try the first patch of each finding in one run, which is the usual case."""
        project = self._project({})
        chosen: list[tuple[Finding, Proposal]] = []
        merged: dict[Path, tuple[Edit, ...]] = {}
        for finding in findings:
            proposal = next(proposals(finding, self._before.trace, project, []), None)
            if proposal is None:
                continue
            both = {path: merged.get(path, ()) + edits for path, edits in proposal.edits.items()}
            try:
                project.after({**merged, **both})
            except CannotPatch:
                continue
            merged.update(both)
            chosen.append((finding, proposal))
        if len(chosen) < 2:
            return
        state, verdict = self._try(project.after(merged), [finding for finding, _ in chosen], self._state)
        if verdict.verified:
            for finding, proposal in chosen:
                together = f"{finding.code} is gone, nothing new, together with the other patches"
                of_one, told = project.after(proposal.edits), replace(verdict, text=together)
                self._patches[id(finding)] = self._patch({}, of_one, proposal.title, told)
            self._state = state

    def _one(self, finding: Finding) -> None:
        current = self._now(finding)
        if current is None:
            self._reasons[id(finding)] = "the patch of another finding cures it, too"
            return
        refusals: list[str] = []
        before = self._state
        project = self._project(before.texts, before.ran.real)
        for proposal in list(proposals(current, before.ran.trace, project, refusals)):
            if self._runs >= MOST_RUNS:
                texts, not_run = project.after(proposal.edits), Verdict(False, _NOT_RUN)
                sketch = self._patch(before.texts, texts, proposal.title, not_run)
                self._patches.setdefault(id(finding), sketch)
                return
            title, state, verdict = self._extended(current, proposal, project, before)
            patch = self._patch(before.texts, state.texts, title, verdict)
            if verdict.verified:
                self._patches[id(finding)], self._state = patch, state
                return
            self._patches.setdefault(id(finding), patch)
        self._reasons[id(finding)] = "; ".join(dict.fromkeys(refusals))

    def _now(self, finding: Finding) -> Finding | None:
        """The finding as it is in the last run, with the lines that it has there."""
        key = key_of(finding, self._moved({}, self._state.texts))
        return next((other for other in self._state.ran.findings if key_of(other) == key), None)

    def _extended(
        self, finding: Finding, proposal: Proposal, project: Project, before: _State
    ) -> tuple[str, _State, Verdict]:
        """Try a patch, with patches of what it brings to light; the first that was tried where none is verified."""
        first: tuple[str, _State, Verdict] | None = None
        cured, titles, texts = [finding], [proposal.title], {**before.texts, **project.after(proposal.edits)}
        for _ in range(_ROUNDS):
            state, verdict = self._try(texts, cured, before)
            first = first or (titles[0], state, verdict)
            if verdict.verified:
                return "; ".join(dict.fromkeys(titles)), state, verdict
            further = self._further(verdict, state)
            if further is None or self._runs >= MOST_RUNS:
                break
            # What it brought to light is cured, too, where it is not found again: nothing new is left then.
            title, more = further
            titles.append(title)
            texts = {**texts, **more}
        assert first is not None
        return first

    def _further(self, verdict: Verdict, state: _State) -> tuple[str, Texts] | None:
        """The patch of the first new finding that has one."""
        project = self._project(state.texts, state.ran.real)
        for finding in verdict.new:
            for proposal in proposals(finding, state.ran.trace, project, []):
                return proposal.title, project.after(proposal.edits)
        return None

    def _try(self, texts: Texts, cured: Sequence[Finding], before: _State) -> tuple[_State, Verdict]:
        codes = ", ".join(dict.fromkeys(finding.code for finding in cured))
        self._tell(f"verifying a patch for {codes}")
        self._runs += 1
        after = self._run(texts)
        verdict = judge(cured, before.ran, after, self._moved(before.texts, texts))
        return _State(texts, after), verdict

    # -- texts --------------------------------------------------------------------------------------------

    def _project(self, texts: Texts, real: Callable[[str], str] = str) -> Project:
        return Project(self._folder, texts, self._as_it_ran, real)

    def _pairs(self, before: Texts, after: Texts) -> Iterator[tuple[str, str, str]]:
        """Name, text before and text after of the files that change."""
        for path in after:
            name = _name(self._folder, path)
            first, second = (Text(path, texts.get(path)).text for texts in (before, after))
            if first != second:
                yield name, first, second

    def _moved(self, before: Texts, after: Texts) -> Moved:
        lines = {name: moved_lines(first, second) for name, first, second in self._pairs(before, after)}
        return lambda file, line: lines[file].get(line) if file in lines else line

    def _patch(self, before: Texts, after: Texts, title: str, verdict: Verdict) -> Patch:
        pairs = list(self._pairs(before, after))
        back = {
            name: {later: line for line, later in moved_lines(first, second).items()}
            for name, first, second in self._pairs({}, before)
        }
        changes = [
            Change(name, back.get(name, {}).get(line, 0) if name in back else line, removed, text)
            for name, first, second in pairs
            for line, removed, text in changed_lines(first, second)
        ]
        diff = "".join(unified_diff(name, first, second) for name, first, second in pairs)
        # A change of what another patch inserts is none of the file as it is.
        whole = all(change.line for change in changes)
        return Patch(title, diff, verdict.verified, verdict.told, tuple(changes) if whole else ())


def total_diff(folder: Path, texts: Texts) -> str:
    """All changes of the user's files as one diff."""
    changes = ((path, Text(path).text, Text(path, raw).text) for path, raw in texts.items())
    return "".join(unified_diff(_name(folder, path), before, after) for path, before, after in changes)


def _name(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)

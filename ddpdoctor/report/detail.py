"""What several formats say in the same words: a finding in full, and the verdict."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ddpdoctor.check import Check
from ddpdoctor.model import (
    CheckResult,
    Confidence,
    Evidence,
    Family,
    Finding,
    Level,
    Outcome,
    Patch,
    Report,
)
from ddpdoctor.report.excerpt import excerpt_lines
from ddpdoctor.report.line import Line, Part, Style, plain, styled
from ddpdoctor.report.places import Places
from ddpdoctor.text import fold_ranks, plural, ranks_phrase

_Placed = TypeVar("_Placed", Check, CheckResult)
_LABEL = 9
"""The width of ``  why:   ``."""
_WIDEST_RANKS = 20
_MOST_OTHERS = 5
"""Further findings of a check that are named one by one."""
COMMENT = "    #"
"""What parts code from its comment in a fix."""
LEVELS = {
    Level.FAIL: ("FAIL", Style.FAIL),
    Level.WARN: ("warn", Style.WARN),
    Level.INFO: ("info", Style.FAINT),
}


def finding_lines(finding: Finding, width: int, places: Places | None = None) -> Iterator[Line]:
    """A finding in full: headline, where with its lines, evidence, why, fix, more."""
    places = places or Places()
    word, style = LEVELS[finding.level]
    label = f"{word}[{finding.code}]"
    yield from styled(hang(f"{label}: ", finding.headline, width, indent=4), style, len(label))
    if finding.where:
        yield Line(f"  --> {places.place(finding.where)}", (Part(0, 5, Style.LABEL),))
    if finding.excerpts:
        yield from excerpt_lines(finding, width, places)
    if finding.evidence:
        yield Line("")
        yield from plain(evidence_lines(finding.evidence, width))
    yield Line("")
    yield from _labelled("why", finding.why, width)
    if finding.confidence is Confidence.LIKELY:
        yield Line("  confidence: likely")
    yield from _labelled("fix", finding.fix, width)
    yield from _patch_lines(finding, width)
    yield from _labelled("more", finding.more, width)


def _patch_lines(finding: Finding, width: int) -> Iterator[Line]:
    patch = finding.patch
    if finding.unpatched:
        yield from _labelled("patch", f"none: {finding.unpatched}", width)
    if patch is None:
        return
    yield from _labelled("patch", f"{patch.title} ({patch_outcome(patch)})", width)
    yield from plain(f"{' ' * _LABEL}{line}".rstrip() for line in patch.diff.split("\n")[:-1])


def full_text(finding: Finding, width: int, places: Places | None = None) -> str:
    """A finding in full, as plain text."""
    return "\n".join(line.text for line in finding_lines(finding, width, places))


def block_lines(findings: Sequence[Finding], width: int, places: Places) -> Iterator[Line]:
    """Findings of one check: the first in full, of the others where they are, on which ranks, and their headlines."""
    first, *others = findings
    yield from finding_lines(first, width, places)
    if others:
        yield from _labelled("also", f"{len(others)} more of {first.code}", width)
    for finding in others[:_MOST_OTHERS]:
        word, style = LEVELS[finding.level]
        label = f"{' ' * _LABEL}{word}  "
        at = [places.place(finding.where)] if finding.where else []
        at += [ranks_phrase(finding.ranks)] if finding.ranks else []
        text = ": ".join(filter(None, [", ".join(at), finding.headline]))
        yield from styled(hang(label, text, width), style, len(label))
        yield from _patch_lines(finding, width)
    if others[_MOST_OTHERS:]:
        yield Line(f"{' ' * _LABEL}and {len(others) - _MOST_OTHERS} more, which --verbose lists")


def summary_lines(blocks: Sequence[Sequence[Finding]], width: int, places: Places) -> Iterator[Line]:
    """A line for each check that found something: where, and the first headline."""
    for findings in blocks:
        first, *others = findings
        word, style = LEVELS[first.level]
        label = f"{word}[{first.code}]"
        at = f"{places.line(first.where)}: " if first.where else ""
        more = f" (and {len(others)} more)" if others else ""
        yield from styled(hang(f"{label}  ", at + first.headline + more, width), style, len(label))


def patch_outcome(patch: Patch) -> str:
    """``verified: DD103 is gone, nothing new``."""
    return f"{'verified' if patch.verified else 'a sketch, not verified'}: {patch.outcome}"


def by_check(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of the same check together, in the order of each check's first."""
    blocks: dict[str, list[Finding]] = {}
    for finding in findings:
        blocks.setdefault(finding.code, []).append(finding)
    return list(blocks.values())


def verdict(report: Report) -> str:
    """``No problem found: 62 checks, 2 ranks, 24 steps in 3 epochs (whole), 8.1 s``."""
    return f"{_outcome(report)}: {', '.join(_extent(report))}"


def counts(report: Report) -> str:
    """``1 failed, 2 warnings, 30 passed``: findings that fail or warn, and checks for the rest."""
    informing = informing_codes(report)
    levels = Counter(finding.level for finding in report.findings)
    count = Counter(check.outcome for check in report.checks)
    informed = sum(check.code in informing and check.outcome is Outcome.PASS for check in report.checks)
    parts = (
        (levels[Level.FAIL], f"{levels[Level.FAIL]} failed"),
        (levels[Level.WARN], plural(levels[Level.WARN], "warning")),
        (count[Outcome.ERROR], plural(count[Outcome.ERROR], "error")),
        (count[Outcome.SKIP], f"{count[Outcome.SKIP]} skipped"),
        (informed, f"{informed} for information"),
        (count[Outcome.PASS] - informed, f"{count[Outcome.PASS] - informed} passed"),
    )
    return ", ".join(text for number, text in parts if number) or "nothing was examined"


def _outcome(report: Report) -> str:
    levels = Counter(finding.level for finding in report.findings)
    problems = [
        plural(levels[level], noun)
        for level, noun in ((Level.FAIL, "problem"), (Level.WARN, "warning"))
        if levels[level]
    ]
    broken = sum(check.outcome is Outcome.ERROR for check in report.checks)
    if broken:
        problems.append(f"{plural(broken, 'check')} broke")
    if problems:
        return ", ".join(problems)
    nothing = "" if report.checks else "nothing was examined"
    incomplete = str(report.run.get("incomplete") or nothing)
    return incomplete[:1].upper() + incomplete[1:] if incomplete else "No problem found"


def _extent(report: Report) -> Iterator[str]:
    """How much was examined."""
    yield plural(sum(check.outcome is not Outcome.SKIP for check in report.checks), "check")
    if ranks := ranks_of_run(report):
        yield ranks.removesuffix(" on 1 host")
    trained = report.run.get("trained") or {}
    if steps := trained.get("steps"):
        epochs = f" in {plural(trained['epochs'], 'epoch')}" if trained.get("epochs") else ""
        yield f"{plural(steps, 'step')}{epochs} ({'cut short' if report.run.get('shortened') else 'whole'})"
    yield f"{report.seconds:.1f} s"


def ranks_of_run(report: Report) -> str:
    """``4 ranks on 1 host``, ``5 of 512 ranks on 64 simulated hosts``; empty where it is not known."""
    run = report.run
    if imagined := run.get("imagined"):
        hosts = -(-imagined["world_size"] // imagined["nproc"])
        ranks = f"{len(imagined['ranks'])} of {plural(imagined['world_size'], 'rank')}"
        return f"{ranks} on {plural(hosts, 'simulated host')}"
    if not run.get("nproc"):
        return ""
    hosts = run.get("nnodes", 1)
    return f"{plural(run['nproc'] * hosts, 'rank')} on {plural(hosts, 'host')}"


def in_order(checks: Iterable[_Placed]) -> list[_Placed]:
    """Checks, or their lines, in the order of the report: by family, then by code."""
    order = list(Family)
    return sorted(checks, key=lambda check: (order.index(check.family), check.code))


def informing_codes(report: Report) -> frozenset[str]:
    """The codes of the checks that have something to say although nothing is wrong."""
    return frozenset(finding.code for finding in report.findings if finding.level is Level.INFO)


def fold_evidence(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Evidence with one entry for each distinct state, the ranks that share it taken together."""
    ranks: dict[str, set[int]] = {}
    for entry in evidence:
        ranks.setdefault(entry.text, set()).update(entry.ranks)
    return [Evidence(text, tuple(sorted(those))) for text, those in ranks.items()]


def hang(label: str, text: str, width: int, indent: int | None = None) -> list[str]:
    """Text behind a label, wrapped; further lines start under the text, or at ``indent``.

    A line that is indented is something to copy, and stays as it is. So is one of code with a comment, whose comment
    stands above it where both are too long for a line.
    """
    margin = " " * (len(label) if indent is None else indent)
    lines: list[str] = []
    for line in text.split("\n"):
        room = width - len(label)
        code, sign, comment = line.partition(COMMENT)
        if not line or line.startswith(" "):
            lines.append(line)
        elif sign and len(line) > room:
            lines += [f"# {part.rstrip()}" for part in _wrap(comment.strip(), room - 2, room - 2)]
            lines.append(code.rstrip())
        else:
            lines += _wrap(line, room, width - len(margin))
    return [f"{margin if number else label}{line}".rstrip() for number, line in enumerate(lines)]


def _wrap(line: str, first_width: int, width: int) -> list[str]:
    # The longer label of the first line is stood in for by a word that cannot be broken, and cut off again.
    stand_in = "x" * max(width - first_width, 0)
    wrapped = textwrap.wrap(
        stand_in + line, max(width, 20), break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [wrapped[0][len(stand_in) :], *wrapped[1:]]


def _labelled(label: str, text: str, width: int) -> Iterator[Line]:
    return styled(hang(f"  {label + ':':{_LABEL - 2}}", text, width), Style.LABEL, _LABEL)


def evidence_lines(evidence: Sequence[Evidence], width: int) -> Iterator[str]:
    """Evidence as a table of ranks and what was seen there."""
    rows = [(fold_ranks(entry.ranks), entry.text) for entry in fold_evidence(evidence)]
    if not any(ranks for ranks, _ in rows):
        for _, text in rows:
            yield from hang("   ", text, width)
        return
    column = max(len("ranks"), *(len(ranks) for ranks, _ in rows if len(ranks) <= _WIDEST_RANKS), 0)
    yield f"   {'ranks':{column}}   seen"
    for ranks, text in rows:
        if len(ranks) > column:
            yield from hang("   ", ranks, width)
        yield from hang(f"   {ranks if len(ranks) <= column else '':{column}}   ", text, width)

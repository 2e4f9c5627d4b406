"""One failure, one finding: of everything that the checks found in an output, the root cause.

Each finding says by its :class:`~ddpdoctor.model.Sighting` where it was seen and what that line is to the failure.
The rule is the order of :class:`~ddpdoctor.model.Role`, with one refinement: what names a problem and what is only
an exception are both causes, so the earlier of them wins, and the name where both are the same line.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ddpdoctor import failures
from ddpdoctor.check import Check
from ddpdoctor.judge import Verdict, drop_symptoms, judge
from ddpdoctor.logs.log import Log
from ddpdoctor.model import Confidence, Evidence, Finding, Level, Role, Source

_ORDER = (
    {Role.SYSTEM},
    {Role.CAUSE, Role.EXCEPTION},
    {Role.DEATH},
    {Role.LIBRARY},
    {Role.MESSENGER},
    {Role.ATTEMPT},
    {Role.UNKNOWN},
)


def root_cause(findings: Sequence[Finding]) -> Finding | None:
    """The failure or end among them that explains the others; None where nothing failed."""
    return min(filter(_is_an_end, findings), key=_explains, default=None)


def _is_an_end(finding: Finding) -> bool:
    """Whether it is a failure, or the end of the job by a person, of which a check only warns."""
    by_person = finding.sighting is not None and finding.sighting.role is Role.DEATH
    return by_person or finding.level is Level.FAIL


def _explains(finding: Finding) -> tuple[int, int, bool, str]:
    if (sighting := finding.sighting) is None:
        return 0, 0, False, finding.code
    state = next(number for number, roles in enumerate(_ORDER) if sighting.role in roles)
    return state, sighting.position, sighting.role is Role.EXCEPTION, finding.code


def without_symptoms(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with the root cause only, beside what is no failure."""
    verdicts = drop_symptoms(_without_attempts(verdicts))
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    if (cause := root_cause(findings)) is None:
        return verdicts
    told = _with_readings(cause, findings)
    cleared = (_cleared(verdict, cause) for verdict in verdicts)
    return [
        replace(verdict, findings=tuple(told if it is cause else it for it in verdict.findings))
        for verdict in cleared
    ]


def _with_readings(cause: Finding, findings: Iterable[Finding]) -> Finding:
    """The root cause, with what other checks say of the same line where that line names their problem, too."""
    readings = [
        Evidence(f"the same line may mean: {finding.headline} ({finding.code})")
        for finding in findings
        if finding.code != cause.code and _names(finding) and _names(finding) == _names(cause)
    ]
    if not readings:
        return cause
    return replace(cause, evidence=(*cause.evidence, *readings), confidence=Confidence.LIKELY)


def _names(finding: Finding) -> int | None:
    """The position of the line that names its problem, if one does."""
    sighting = finding.sighting
    is_named = (
        sighting is not None and finding.level is Level.FAIL and sighting.role in (Role.SYSTEM, Role.CAUSE)
    )
    return sighting.position if sighting and is_named else None


def _without_attempts(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Less what only warns of an attempt, where something else tells of the failure: the attempt explains nothing."""
    cause = root_cause([finding for verdict in verdicts for finding in verdict.findings])
    if cause is None or (cause.sighting and cause.sighting.role in (Role.ATTEMPT, Role.UNKNOWN)):
        return list(verdicts)
    return [verdict.without(filter(_is_of_attempt, verdict.findings), cause.code) for verdict in verdicts]


def _is_of_attempt(finding: Finding) -> bool:
    failed = finding.level is Level.FAIL
    return failed and finding.sighting is not None and finding.sighting.role is Role.ATTEMPT


def _cleared(verdict: Verdict, cause: Finding) -> Verdict:
    others = (finding for finding in filter(_is_an_end, verdict.findings) if finding is not cause)
    return verdict.without((finding for finding in others if not _is_beside(finding, cause)), cause.code)


def _is_beside(finding: Finding, cause: Finding) -> bool:
    """Whether it is the same failure of another thing, such as a second GPU: neither explains the other."""
    apart = cause.about and finding.about and set(cause.about).isdisjoint(finding.about)
    return finding.code == cause.code and bool(apart)


def examine(log: Log, checks: Iterable[Check], on_error: Callable[[str], None]) -> list[Verdict]:
    """What the checks say of a job's output, without symptoms, and with the hosts of the ranks."""
    return [_with_hosts(it, log) for it in without_symptoms(judge(Source.LOG, checks, log, on_error))]


def _with_hosts(verdict: Verdict, log: Log) -> Verdict:
    """The verdict, whose findings tell on which hosts their ranks ran, as far as the output names them."""
    if not log.host_of:
        return verdict
    findings = (
        replace(finding, evidence=(*_hosts_of(finding.ranks, log), *finding.evidence))
        for finding in verdict.findings
    )
    return replace(verdict, findings=tuple(findings))


def _hosts_of(ranks: Iterable[int], log: Log) -> Iterator[Evidence]:
    hosts = {rank: log.host_of[rank] for rank in ranks if rank in log.host_of}
    for host in sorted({*hosts.values()}):
        yield Evidence(f"on host {host}", tuple(rank for rank in hosts if hosts[rank] == host))


def words(checks: Sequence[Check]) -> list[str]:
    """What the readers have to look for, so that these checks see their lines."""
    patterns = {it for check in checks for it in (*check.raises, *(row.pattern for row in check.messages))}
    return sorted(failures.words(*patterns).union(*(check.log_words for check in checks)))

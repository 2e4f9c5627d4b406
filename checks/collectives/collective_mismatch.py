import re
from collections.abc import Sequence

from ddpdoctor.blame.causes import CallCircle, DifferentLines, MessageCircle, Mismatch
from ddpdoctor.blame.wording import cause_fields, wait_phrase, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Line, Log, Raised, Reason, Wait, log_fields
from ddpdoctor.model import Confidence, Evidence, Family, Finding, Judgement, Passed, Role
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.sequence import divergence_of, mismatch
from ddpdoctor.trace.standstill_check import StandstillCheck

_DETAIL = (
    r"Detected mismatch between collectives on ranks\. Rank (?P<a>\d+) is running collective: "
    r"CollectiveFingerPrint\((?P<first>.*?)\), but Rank (?P<b>\d+) is running collective: "
    r"CollectiveFingerPrint\((?P<second>.*)"
)
_GLOO_SIZE = r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<room>\d+)"
_OTHERS = (
    r"[Cc]ollective sequence number mismatch|Mismatched? (?:between )?collective (?:operation types|detected)"
    r"|Message truncated ?: received \d+ bytes instead of \d+"
)

_SHOWN = 8
"""Ranks of a circle."""
_LEAD_HERE = ("DD221", "DD301", "DD303", "DD305", "DD309")
"""Diseases by which ranks come to meet in different collectives."""


class CollectiveMismatch(StandstillCheck):
    """Ranks ran different collectives at the same position.

    What it finds:
        Two ranks whose next collective differs in operation, shape, dtype or sequence number. In a run, and in a job
        that stands still, the lines from which they called them.

    Why it matters:
        Collectives are matched by their order alone. Ranks that call different ones wait for ever, get an error
        about sizes, or, where the sizes fit, wrong results and no error.

    Example:
        if batch.has_images:
            features = gather(vision(batch))      # one rank's batch has none, and it goes on to the next collective

    Fix:
        Bring every rank through the same collectives in the same order with the same shapes: a dummy input for the
        branch that one rank does not take, padding before a gather.
    """

    code = "DD302"
    name = "collective-mismatch"
    family = Family.COLLECTIVES
    title = "ranks run the same collectives"
    explained_by = ("DD005", "DD106", "DD204", "DD214", "DD225", "DD308")
    raises = (_DETAIL, _GLOO_SIZE, _OTHERS)
    log_words = ("mismatch between collectives", "ismatched collective", "Message truncated")

    def examine_ended(self, trace: Trace) -> Judgement:
        diverged = divergence_of(trace)
        if diverged is None:
            if ended := _ended_by_gloo(trace):
                return [self._sent_more(*ended)]
            if trace.broken:
                raise NotMeasured(trace.broken)
            return Passed(f"{ranks_phrase(trace.recordings())} issued the same collectives")
        if any(point.kind != "collective" for point in diverged.values()):
            raise NotMeasured("ranks diverged, but not at a collective")
        return [self._differ(mismatch(diverged))]

    @reports(Mismatch)
    def _differ(self, cause: Mismatch) -> Finding:
        first, second = cause.first, cause.second
        where = f" at {cause.position}," if cause.position else ""
        return self.fail(
            f"{who(first.ranks)} called {first.text}{where} where {who(second.ranks)} called {second.text}",
            why="Collectives are matched by their order alone, so these met each other: the ranks wait for what never "
            "comes, get each other's bytes, or end with an error about sizes.",
            fix="bring every rank through the same collectives in the same order, with the same shapes: pad to the "
            "largest before a gather, or dist.all_gather_object for what differs in length",
            **cause_fields(cause),
        )

    @reports(MessageCircle)
    def _messages(self, cause: MessageCircle) -> Finding:
        chain = ", ".join(f"rank {rank} for rank {peer}" for rank, peer in list(cause.peers.items())[:_SHOWN])
        return self.fail(
            f"{who(cause.culprits)} wait for each other in {cause.what}: {chain}",
            why="Every one of them waits for a message that its peer sends only after it got its own, so none begins.",
            fix="let every second rank send first; or issue both at once:\n"
            "for work in dist.batch_isend_irecv([P2POp(dist.isend, ...), P2POp(dist.irecv, ...)]):\n    work.wait()",
            **cause_fields(cause),
        )

    @reports(CallCircle)
    def _circle(self, cause: CallCircle) -> Finding:
        first, other = cause.culprits[0], f"rank {cause.other} in {cause.its_place}"
        headline = f"rank {first} waits in {cause.first}, and {other}, each for the other"
        if len(cause.culprits) > 2:
            headline = (
                f"{who(cause.culprits)} wait for each other in a circle, the first of them in {cause.first}"
            )
        return self.fail(
            headline,
            why="Each came first to what another does later: they call the same groups, or each other, in different "
            "orders, so none can go on.",
            fix="use groups, sends and receives in one order on every rank: by the number of the group, and of two "
            "ranks one sends first and the other receives first\n"
            "ops = [dist.P2POp(dist.isend, ...), dist.P2POp(dist.irecv, ...)]\n"
            "for work in dist.batch_isend_irecv(ops): work.wait()    # for exchanges, in any order",
            **cause_fields(cause),
        )

    @reports(DifferentLines)
    def _different_lines(self, cause: DifferentLines) -> Finding:
        return self.fail(
            ", ".join(wait_phrase(ranks, place) for ranks, place in cause.places[:3]),
            why="Collectives are matched by their order alone, and each of these waits for ranks that are in another "
            "one. Some ranks called something that the others did not: under a condition on the rank, in a loop that "
            "they left at different steps, or on a parameter that one rank left out. Stacks alone do not show which.",
            fix="bring every rank through the same collectives in the same order; to see where they diverged:\n"
            "ddpdoctor check train.py     # or ddpdoctor watch -- torchrun ..., which record it",
            **cause_fields(cause),
        )

    def examine_log(self, log: Log) -> Judgement:
        told = log.search(_DETAIL)
        if told:
            return [self._described(told)]
        told = log.search(_GLOO_SIZE, _OTHERS)
        if told is None:
            apart = _apart(log.waits)
            return [self._waited_apart(apart)] if apart else NOT_IN_OUTPUT
        said = told.match.groupdict()
        headline = (
            f"a rank sent {said['got']} bytes where its peer expected {said['room']}"
            if said.get("got")
            else "ranks ran different collectives at the same position"
        )
        return [self._finding(headline, told.sources)]

    def _waited_apart(self, waits: Sequence[Wait]) -> Finding:
        ranks: dict[str, list[int]] = {}
        for one in waits:
            ranks.setdefault(one.operation, []).append(one.rank or 0)
        fewest, *others = sorted(ranks.items(), key=lambda item: len(item[1]))
        who = " and ".join(f"{ranks_phrase(some)} in {operation}" for operation, some in others)
        alone = len(fewest[1]) < len(others[0][1])
        return self._finding(
            f"{ranks_phrase(fewest[1])} waited in {fewest[0]} number {waits[0].sequence}, {who} with the same number",
            tuple(wait.line for wait in waits),
            tuple(fewest[1]) if alone else tuple(sorted(rank for some in ranks.values() for rank in some)),
            role=Role.MESSENGER,
        )

    def _described(self, told: Reason) -> Finding:
        first, second = int(told.match["a"]), int(told.match["b"])
        return self._finding(
            f"rank {first} ran {_short(told.match['first'])} where rank {second} ran {_short(told.match['second'])}",
            told.sources,
            (first, second),
        )

    def _sent_more(self, rank: RankTrace, match: re.Match[str]) -> Finding:
        wrappers = rank.recording.wrappers if rank.recording else ()
        return self.fail(
            f"rank {rank.rank} was sent {match['got']} bytes in a collective that takes {match['room']}",
            why="gloo ended it, since another rank was in another collective, or in one of another size. It need "
            "not be a call of the script: SyncBatchNorm's forward is one, and so is the wrapper's constructor.",
            fix="bring every rank through the same collectives, wraps and forwards in train mode in the same order",
            ranks=(rank.rank,),
            where=next((wrapper.at for wrapper in wrappers if not wrapper.ready), None),
            evidence=(Evidence(match[0], (rank.rank,)),),
            confidence=Confidence.LIKELY,
            explained_by=_LEAD_HERE,
        )

    def _finding(
        self,
        headline: str,
        told: Sequence[Line | Raised],
        ranks: tuple[int, ...] | None = None,
        role: Role = Role.CAUSE,
    ) -> Finding:
        who = f"{ranks_phrase(ranks)} have" if ranks else "The ranks have"
        return self.fail(
            headline,
            why=f"{who} left the common order of collectives: a branch that depends on the rank's data or its number, "
            "or tensors whose sizes differ between ranks.",
            fix="follow both ranks to the line that calls the collective, and bring them through the same ones\n"
            "TORCH_DISTRIBUTED_DEBUG=DETAIL names both where it does not crash; ddpdoctor check train.py does too",
            **log_fields(*told, ranks=ranks, role=role),
        )


def _apart(waits: Sequence[Wait]) -> list[Wait]:
    """Of the group of all ranks the waits in different operations that have one number."""
    by_number: dict[int, list[Wait]] = {}
    for one in waits:
        if one.of_all and one.collective and one.sequence is not None and one.rank is not None:
            by_number.setdefault(one.sequence, []).append(one)
    return next((some for some in by_number.values() if len({one.operation for one in some}) > 1), [])


def _ended_by_gloo(trace: Trace) -> tuple[RankTrace, re.Match[str]] | None:
    """The rank that gloo aborted since a peer sent it more than it expected, and what gloo said of it."""
    first = trace.first_to_break()
    if first is None or first.killed_by is None or not first.is_victim or trace.timed_out:
        return None
    said = next((found for line in first.output if (found := re.search(_GLOO_SIZE, line))), None)
    return (first, said) if said else None


def _short(fingerprint: str) -> str:
    """``ALLREDUCE [20]`` of the long description of a collective."""
    parts = (
        re.search(r"OpType=([A-Z_]+)", fingerprint),
        re.search(r"TensorShape=(\[[\d, ]*\])", fingerprint),
    )
    return " ".join(part[1] for part in parts if part) or "another collective"

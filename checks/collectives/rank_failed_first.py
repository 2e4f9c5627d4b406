from ddpdoctor.check import Check
from ddpdoctor.group.record import GroupRecord, RankRecord, Stage
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase


class RankFailedFirst(Check):
    """One rank failed, and the others are its victims.

    What it finds:
        The first rank to fail, with its exception and line. The other ranks fail a moment later, because their
        peer is gone ("connection closed by peer"), or are stopped by the launcher; their errors say nothing.

    Why it matters:
        A job that ends this way shows the traceback of every rank, most of them about the connection. The one
        that names the cause is easily missed, or stands above thousands of other lines.

    Example:
        Rank 2 meets a broken image and raises; ranks 0, 1 and 3 report "Connection closed by peer".

    Fix:
        Look at the exception of the rank named here, and at none of the others.
    """

    code = "DD304"
    name = "rank-failed-first"
    family = Family.COLLECTIVES
    title = "every rank reaches its end"

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        first = ranks.first_to_break()
        if ranks.broken is None:
            return Passed(f"all {len(ranks.ranks)} ranks of the live group reached their end")
        killed = first is not None and first.failure is None and (first.exit_code or 0) < 0
        if first is None or killed or ranks.stage is not Stage.MEASURE:
            raise NotMeasured(ranks.broken)
        return [self._failure(ranks, first)]

    def _failure(self, ranks: GroupRecord, first: RankRecord) -> Finding:
        others = [one.rank for one in ranks.ranks if one.rank != first.rank]
        what, where = _what(first), first.step or first.current
        return self.fail(
            f"rank {first.rank} {what} in {where}",
            why=f"Rank {first.rank} ended before the group's work was done. "
            + (f"What {ranks_phrase(others)} said afterwards is a consequence." if others else ""),
            fix=f"look at the last line of rank {first.rank}'s traceback that is not torch's; the others are victims",
            ranks=(first.rank,),
            evidence=_traceback(first) or tuple(Evidence(line) for line in ranks.log),
        )


def _what(first: RankRecord) -> str:
    if first.failure:
        message = next(iter(first.failure.message.splitlines()), "")
        return f"failed with {first.failure.type}" + (f" {quote(message)}" if message else "")
    return (
        f"ended with exit status {first.exit_code}" if first.exit_code is not None else "ended without a word"
    )


def _traceback(first: RankRecord) -> tuple[Evidence, ...]:
    return (Evidence(first.failure.traceback.rstrip(), (first.rank,)),) if first.failure else ()

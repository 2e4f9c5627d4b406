from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.logs.stall import find_stall
from ddpdoctor.model import Confidence, Evidence, Family, Finding, Judgement, Passed, Role
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.stations import Station, parting_of

_FIX_FORWARD = "model.module(x)     # the bare model: no rank waits for another"
_FIX_CALL = (
    "take the call out of the condition on the rank, so that every rank makes it\n"
    "if rank == 0:\n    ...    # only what one rank can do alone"
)


class CollectiveOnSomeRanks(Check):
    """A collective runs on some ranks only.

    What it finds:
        The few ranks, mostly rank 0 alone, that waited in a collective that the others never called: in a run that
        broke, the line of it, and what the others did instead.

    Why it matters:
        Calls under `if rank == 0` are collectives more often than they look: the forward of a wrapped model that has
        buffers, a metric's compute(), a save that gathers. Rank 0 waits there until the timeout.

    Example:
        if rank == 0:
            evaluate(model)      # model is wrapped: its forward broadcasts buffers, and nobody else takes part

    Fix:
        Use the bare model (model.module) where one rank works alone, or let all ranks take part.
    """

    code = "DD303"
    name = "collective-on-some-ranks"
    family = Family.COLLECTIVES
    title = "collectives run on every rank"
    explained_by = ("DD005", "DD106", "DD214", "DD225", "DD308")

    def examine_run(self, trace: Trace) -> Judgement:
        parted = parting_of(trace)
        if parted is None:
            if trace.broken:
                raise NotMeasured(trace.broken)
            return Passed(f"{ranks_phrase(trace.recordings())} issued the same collectives")
        alone = {rank: one for rank, one in parted.stations.items() if _is_extra(one)}
        others = {rank: one for rank, one in parted.stations.items() if rank not in alone}
        if not alone or not others or any(one.what == "end" for one in others.values()):
            raise NotMeasured("ranks parted otherwise than by a collective of some")
        return [self._alone(alone, others)]

    def _alone(self, alone: Mapping[int, Station], others: Mapping[int, Station]) -> Finding:
        first, went_on = next(iter(alone.values())), next(iter(others.values()))
        who, rest = ranks_phrase(alone), ranks_phrase(others)
        return self.fail(
            f"{who} alone called {first.name}, while {rest} went on to {went_on.name}",
            why=f"It is a collective, which needs every rank of the group: {who} waited there for {rest}, or met a "
            "collective that was meant for something else.",
            fix=_FIX_FORWARD if first.kind == "forward" else _FIX_CALL,
            ranks=tuple(alone),
            where=first.at,
            evidence=tuple(
                Evidence(_line(one), (rank,)) for rank, one in sorted({**alone, **others}.items())
            ),
        )

    def examine_log(self, log: Log) -> Judgement:
        stall = find_stall(log)
        if stall is None or not stall.alone:
            return UNSAID
        who = ranks_phrase(stall.waiting)
        return [
            self.fail(
                f"{who} alone waited in {stall.what}{stall.for_how_long}, and no other rank came",
                why=f"{who.capitalize()} called something that is a collective, and the other ranks did not: "
                "code under "
                "a condition on the rank, such as an evaluation through the wrapped model or a metric.",
                fix="use model.module in code that one rank runs alone, or take the condition away\n"
                "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 names the line",
                confidence=Confidence.LIKELY,
                **told_by(*stall.told[:4], role=Role.MESSENGER, ranks=stall.waiting),
            )
        ]


def _is_extra(station: Station) -> bool:
    """Whether the script called it on its own: not a step of training, in which all ranks are to meet."""
    return station.kind == "collective" or (station.kind == "forward" and not station.learns)


def _line(station: Station) -> str:
    return f"{station.name} at {station.at.file}:{station.at.line}" if station.at else station.name

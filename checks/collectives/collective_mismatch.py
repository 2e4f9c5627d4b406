import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ddpdoctor.blame.causes import CallCircle, DifferentLines, MessageCircle, Mismatch
from ddpdoctor.blame.wording import wait_phrase, who
from ddpdoctor.check import Confidence, Evidence, Finding, Judgement, NotMeasured, Passed, Role, reports
from ddpdoctor.frameworks import CALLED_BY_ALL
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Wait, log_fields
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace, by_value, shown_at
from ddpdoctor.trace.gloo import SIZES, bytes_of
from ddpdoctor.trace.recorded_job import HangCheck
from ddpdoctor.trace.sequence import OF_ONE_SIZE, called_alone, divergence_of, mismatch, other_gradients
from ddpdoctor.trace.source_causes import guarded_collective

_DETAIL = (
    r"Detected mismatch between collectives on ranks\. Rank (?P<a>\d+) is running (?:inconsistent )?collective: "
    r"CollectiveFingerPrint\((?P<first>.*?)\)"
    r"(?:, but Rank (?P<b>\d+) is running collective: (?P<second>.*)|$|\)$)"
)
"""torch 1.12 names one of the two ranks only."""
_NCCL_SIZE = (
    r"[Mm]essage truncated ?: receiv(?:ed|ing) (?P<got>\d+) bytes instead of (?P<room>\d+)",
    r"collective mismatch error, local size (?P<got>\d+) remote size (?P<room>\d+)",
)
_IN_BOOTSTRAP = r"bootstrap\.cc:\d+ NCCL WARN Message truncated"
_UNNAMED = (
    r"[Cc]ollective sequence number mismatch|Mismatched? (?:between )?collective (?:operation types|detected)"
    r"(?:, please check your collective calls at and around rank (?P<rank>\d+))?"
)

_OF_ONE_SIZE = {name.replace("_", "") for name in OF_ONE_SIZE}
"""As NCCL's watchdog writes them, less its underscores."""
_MOST_RANKS = 8
"""Ranks of a circle that the headline names."""
_MOST_PLACES = 3
"""Exceptions of other ranks that are quoted, since they show where in the script these were."""
_LEADS_TO_MISMATCH = ("DD221", "DD301", "DD303", "DD305", "DD309")
"""Problems after which ranks meet in different collectives."""
_UNDER_JOIN = (
    "For ranks that have run out of batches, Join answers the collectives of the wrappers that it was given, and no "
    "other ones: call those after it."
)
_OUTSIDE_THE_SCRIPT = (
    "It can be a call outside the script: SyncBatchNorm's forward and DDP's constructor are collectives too."
)
_OTHER_GRADIENTS = (
    "The ranks reduce the gradients of different parameters with each other, because each leaves out those that it did "
    "not use. Where the shapes fit, the weights become wrong without an error; else the job hangs or fails."
)
_ONE_ROOT = (
    "Name one rank as the root on every rank, src=0 for instance. Where each rank has a value for all others, that is "
    "dist.all_gather, or dist.all_reduce for their sum or largest."
)
_EVERY_GRADIENT = (
    "for parameter in model.parameters():    # all of them, on every rank\n    if parameter.grad is None:\n"
    "        parameter.grad = torch.zeros_like(parameter)\n    dist.all_reduce(parameter.grad)"
)


class CollectiveMismatch(HangCheck):
    """Ranks ran different collectives at the same position.

    What it finds:
        Two ranks whose next collective differs in operation, shape, dtype or sequence number, with the lines of both
        calls in a recorded run and in a job that hangs.

    Why it matters:
        Collectives are matched by the order of the calls alone. Ranks that call different ones hang, fail with an
        error about sizes or, where the sizes fit, compute wrong results without an error.

    Example:
        if batch.has_images:
            features = gather(vision(batch))      # a rank without images goes on to the next collective

    Fix:
        Call the same collectives in the same order with the same shapes on every rank: use a dummy input for a branch
        that one rank does not take; pad to the largest shape before a gather, or use dist.all_gather_object for values
        of different lengths. NCCL_PROTO and NCCL_ALGO have to be the same, too.
    """

    code = "DD302"
    title = "ranks run the same collectives"
    fix_with = CALLED_BY_ALL
    explained_by = ("DD005", "DD011", "DD106", "DD204", "DD214", "DD225", "DD308")
    raises = (_DETAIL, SIZES, *_NCCL_SIZE, _UNNAMED)
    log_words = ("essage truncated",)

    def examine_ended(self, trace: Trace) -> Judgement:
        diverged = divergence_of(trace)
        if other := other_gradients(trace.recordings()) if diverged is None else None:
            return [replace(self._mismatch(mismatch(other)), why=_OTHER_GRADIENTS, fix=_EVERY_GRADIENT)]
        if diverged is None:
            if aborted := _aborted_by_gloo(trace):
                return [self._received_too_much(trace, *aborted)]
            trace.require_end()
            return Passed(f"{ranks_phrase(trace.recordings())} issued the same collectives")
        if any(point.kind != "collective" for point in diverged.values()):
            raise NotMeasured("ranks diverged, but not at a collective")
        if called_alone(diverged, trace.recordings()):
            raise NotMeasured("one of the collectives is called by some ranks only")
        return [self._mismatch(mismatch(diverged))]

    @reports(Mismatch)
    def _mismatch(self, cause: Mismatch) -> Finding:
        first, second = cause.first, cause.second
        where = f" at {cause.position}," if cause.position else ""
        return self.fail(
            f"{who(first.ranks)} called {first.text}{where} where {who(second.ranks)} called {second.text}",
            **({"fix": _ONE_ROOT} if cause.of_roots else {}),
        )

    @reports(MessageCircle)
    def _message_circle(self, cause: MessageCircle) -> Finding:
        pairs = list(cause.peers.items())[:_MOST_RANKS]
        chain = ", ".join(f"rank {rank} for rank {peer}" for rank, peer in pairs)
        return self.fail(
            f"{who(cause.culprits)} wait for each other in {cause.what}: {chain}",
            why="Each of them waits for a message that its peer sends only after it has received one itself.",
            fix="let every second rank send first, or issue both at once:\n"
            "for work in dist.batch_isend_irecv([P2POp(dist.isend, ...), P2POp(dist.irecv, ...)]):\n    work.wait()",
        )

    @reports(CallCircle)
    def _call_circle(self, cause: CallCircle) -> Finding:
        ranks, other = cause.culprits, f"rank {cause.other} in {cause.its_place}"
        headline = f"rank {ranks[0]} waits in {cause.first}, and {other}, each for the other"
        if len(ranks) > 2:
            headline = f"{who(ranks)} wait for each other in a circle, the first of them in {cause.first}"
        return self.fail(
            headline,
            why="Each of them has first called what another one calls later: they use the same groups, or each "
            "other, in different orders.",
            fix="use groups in the same order on every rank; of two ranks that exchange messages, one sends first "
            "and the other receives first; or issue the messages at once:\n"
            "ops = [dist.P2POp(dist.isend, ...), dist.P2POp(dist.irecv, ...)]\n"
            "for work in dist.batch_isend_irecv(ops): work.wait()    # in any order",
        )

    @reports(DifferentLines)
    def _different_lines(self, cause: DifferentLines) -> Finding:
        return self.fail(
            ", ".join(wait_phrase(ranks, place) for ranks, place in cause.places[:3]),
            why="Each of these collectives waits for ranks that are in another one. Stacks alone do not show which "
            "rank called something else: under a condition on the rank, in a loop that it left, or for a parameter.",
        )

    def _received_too_much(self, trace: Trace, rank: RankTrace, match: re.Match[str]) -> Finding:
        wrappers = rank.recording.wrappers if rank.recording else ()
        calls = rank.recording.collectives if rank.recording else ()
        unready = next((wrapper.at for wrapper in wrappers if not wrapper.ready), None)
        alone = guarded_collective(rank.recording.script, trace.recorded) if rank.recording else None
        joined = any(step.joined for step in rank.recording.steps) if rank.recording else False
        of_size = next((call.at for call in reversed(calls) if bytes_of(call) == int(match["room"])), None)
        return self.fail(
            f"rank {rank.rank} received {match['got']} bytes in a collective that expects {match['room']}",
            why="gloo aborted it, because another rank was in a different collective, or in one of another size. "
            + (_UNDER_JOIN if joined else _OUTSIDE_THE_SCRIPT),
            where=unready or of_size or alone,
            evidence=(
                Evidence(match[0], (rank.rank,)),
                *shown_at("called under a condition on the rank", None if unready or of_size else alone),
            ),
            confidence=Confidence.LIKELY,
            explained_by=_LEADS_TO_MISMATCH,
        )

    def examine_log(self, log: Log) -> Judgement:
        if reason := log.search(_DETAIL):
            ranks = tuple(int(rank) for rank in reason.match.group("a", "b") if rank)
            fingerprints = [text for text in reason.match.group("first", "second") if text]
            ran = [*map(_collective, fingerprints)]
            if len({*ran}) < len(ran):
                ran = [f"{name}{_number(text)}" for name, text in zip(ran, fingerprints, strict=True)]
            other = f"rank {ranks[1]} ran {ran[1]}" if ranks[1:] else "another did not"
            headline = f"rank {ranks[0]} ran {ran[0]} where {other}"
            return self.fail(headline, **log_fields(reason, ranks=ranks))
        if reason := log.search(_IN_BOOTSTRAP):
            return [self._met_others(log_fields(reason))]
        if reason := log.search(SIZES, *_NCCL_SIZE, _UNNAMED):
            sizes = reason.match.groupdict()
            headline = "ranks ran different collectives at the same position"
            if sizes.get("got"):
                headline = f"a rank sent {sizes['got']} bytes where its peer expected {sizes['room']}"
            elif sizes.get("rank"):
                headline = f"{headline}; NCCL noticed it at rank {sizes['rank']}"
            places = [raised for raised in log.fatal if raised.where and raised not in reason.sources]
            return self.fail(headline, **log_fields(reason, *places[:_MOST_PLACES]))
        waits = _with_same_number(log)
        return [self._waited_in_different(waits)] if waits else NOT_IN_OUTPUT

    def _met_others(self, details: dict[str, Any]) -> Finding:
        return self.fail(
            "ranks that connected to each other do not belong to one communicator of NCCL",
            why="While NCCL connected the ranks, one got a message of another length than the one it expects: the "
            "ranks load different versions of NCCL, gave different world sizes, or made their groups in another order.",
            fix="on every host: python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'\n"
            "call dist.new_group on every rank, in the same order and with the same ranks",
            **details,
        )

    def _waited_in_different(self, waits: Sequence[Wait]) -> Finding:
        by_call = by_value({wait.rank or 0: _call(wait) for wait in waits})
        (call, fewest), *others = sorted(by_call.items(), key=lambda item: len(item[1]))
        rest = " and ".join(f"{ranks_phrase(ranks)} in {other}" for other, ranks in others)
        alone = len(fewest) < len(others[0][1])
        ranks = fewest if alone else tuple(sorted(wait.rank or 0 for wait in waits))
        lines = (wait.line for wait in waits)
        return self.fail(
            f"{ranks_phrase(fewest)} waited in {call}, {rest}",
            **log_fields(*lines, ranks=ranks, role=Role.MESSENGER),
        )


def _with_same_number(log: Log) -> list[Wait]:
    """The waits of the default group with the same sequence number in different operations, or of different sizes.

    The group of one is known where the output goes on to its watchdog's next line, which may be cut off.
    """
    by_number: dict[int, list[Wait]] = {}
    for wait in log.waits:
        known = wait.sequence is not None and wait.rank is not None
        if wait.may_be_of_all and wait.collective and known:
            by_number.setdefault(wait.sequence or 0, []).append(wait)
    of_all = [it for it in by_number.values() if "0" in {wait.group for wait in it} or _are_all(it, log)]
    return next((alike for alike in of_all if len({*map(_call, alike)}) > 1), [])


def _call(wait: Wait) -> str:
    """The operation and its number, and how large it is where it has one size on all ranks of a right program."""
    sized = wait.operation.replace("_", "").lower() in _OF_ONE_SIZE
    return f"{wait.what} of {wait.elements} elements" if sized else wait.what


def _are_all(waits: Sequence[Wait], log: Log) -> bool:
    """Whether these are all ranks of the job, which no smaller group has; a label names ranks in the job."""
    ranks = {wait.rank for wait in waits}
    size = log.world_size or (len(ranks) if all(wait.line.rank is not None for wait in waits) else 0)
    return ranks == {*range(size)} and all(wait.may_be_of_all for wait in log.waits)


def _aborted_by_gloo(trace: Trace) -> tuple[RankTrace, re.Match[str]] | None:
    """The rank that gloo aborted because a peer sent it more than it expected, and gloo's message."""
    first = trace.first_to_break()
    if first is None or first.killed_by is None or not first.is_victim or trace.timed_out:
        return None
    return next(((first, match) for line in first.output if (match := re.search(SIZES, line))), None)


def _number(fingerprint: str) -> str:
    number = re.search(r"SequenceNumber=(\d+)", fingerprint)
    return f" number {number[1]}" if number else ""


def _collective(fingerprint: str) -> str:
    """``ALLREDUCE [20]`` of torch's long description of a collective."""
    parts = (
        re.search(r"OpType=([A-Z_]+)|^([A-Z_]+)\.?$", fingerprint),
        re.search(r"TensorShape=(\[[\d, ]*\])", fingerprint),
    )
    return " ".join(part[1] or part[2] for part in parts if part) or "another collective"

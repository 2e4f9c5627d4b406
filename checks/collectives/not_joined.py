from collections.abc import Sequence

from ddpdoctor.blame.frames import where_of
from ddpdoctor.blame.tree import lines, merge
from ddpdoctor.check import Check
from ddpdoctor.group.record import GroupRecord, RankRecord, Stage
from ddpdoctor.hang.verdict import culprits
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.logs.stall import Stall, find_stall, long_work
from ddpdoctor.model import Confidence, Evidence, Family, Finding, Judgement, Passed, Role, Where
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.verdict import claim


class CollectiveNotJoined(Check):
    """Some ranks wait in a collective that others never reach.

    What it finds:
        A rank that stopped answering while its peers wait for it in a collective: which rank, where it is
        instead, and which ranks wait where. Where every rank waits in the same collective, nothing is late and
        the connection between them is the suspect.

    Why it matters:
        A collective ends when every rank has joined it. One rank elsewhere holds all of them until the process
        group's timeout, 10 or 30 minutes later, and then every rank reports the timeout and none the cause.

    Example:
        if rank == 0:
            evaluate(model)          # the other ranks go on, and wait in the next all-reduce
        loss.backward()

    Fix:
        Bring every rank to the same collectives in the same order. Look at the stack of the rank that is
        missing: it shows the line where it is instead.
    """

    code = "DD301"
    name = "collective-not-joined"
    family = Family.COLLECTIVES
    title = "no rank keeps the others waiting"
    explained_by = (
        *("DD004", "DD005", "DD106", "DD204", "DD214", "DD225"),
        *("DD302", "DD303", "DD305", "DD308", "DD309"),
    )
    log_words = ("failed to pass monitored",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.hung is None or ranks.stage is not Stage.MEASURE:
            if ranks.broken:
                raise NotMeasured(ranks.broken)
            return Passed(f"no rank kept the others waiting in {ranks.seconds:.1f} s")
        return [self._hang(ranks, [one for one in ranks.ranks if not one.finished])]

    def examine_run(self, trace: Trace) -> Judgement:
        hung = claim(self, trace)
        if hung:
            return hung
        if not trace.timed_out or trace.out_of_time:
            if trace.broken:
                raise NotMeasured(trace.broken)
            within = f" in {trace.seconds:.1f} s" if trace.ranks else ""
            return Passed(f"no rank kept the others waiting{within}")
        stopped = [one for one in trace.ranks if not one.finished]
        if not stopped:
            return Passed("every rank had come to its end when the run was stopped")
        return [self._stopped(trace, stopped)]

    def examine_log(self, log: Log) -> Judgement:
        stall = find_stall(log)
        if stall is None or stall.alone or long_work(log, stall):
            return UNSAID
        late = stall.missing or stall.absent or _behind(stall)
        if not late:
            return UNSAID
        others = ranks_phrase(rank for rank in stall.waiting if rank not in late)
        return [
            self.fail(
                f"{ranks_phrase(late)} did not join {stall.what}, in which {others} waited{stall.for_how_long}"
                if others.strip("ranks ")
                else f"{ranks_phrase(late)} did not join {stall.what}",
                why=f"{ranks_phrase(late).capitalize()} left the common order of collectives, or was busy "
                "elsewhere: fewer "
                "batches, a branch on the rank's own data, a stuck DataLoader. Who waits is the victim.",
                fix=f"see where {ranks_phrase(late)} was: py-spy dump of its process the next time, or\n"
                "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...     # names the line of "
                "every rank",
                confidence=Confidence.LIKELY,
                **told_by(*stall.told[:6], role=Role.MESSENGER, ranks=late),
            )
        ]

    def _stopped(self, trace: Trace, stopped: list[RankTrace]) -> Finding:
        """No rank waits for another, and none goes on."""
        who, limit = ranks_phrase(one.rank for one in stopped), f"within {trace.seconds:.0f} s"
        return self.fail(
            f"{who} of the training run did not end {limit}"
            if _joined(trace)
            else f"no rank had joined a process group when the run was stopped after {trace.seconds:.0f} s",
            why="Processes were there and did nothing for a while: they wait for a lock, an answer or a file, or in "
            "init_process_group for ranks that nobody started.",
            fix="see in the stacks which call does not come back; a script that waits for something on purpose, and a "
            "busy machine, may only need more time: ddpdoctor check --timeout 600",
            ranks=tuple(one.rank for one in stopped),
            where=_where(stopped, tuple(one.rank for one in stopped)),
            evidence=_stacks(stopped),
        )

    def _hang(self, ranks: GroupRecord, stopped: list[RankRecord]) -> Finding:
        late = culprits({one.rank: one.stack for one in stopped}, {one.rank: one.steps for one in stopped})
        step = _waited_for(stopped, late)
        tree = merge({one.rank: one.stack for one in stopped if one.stack})
        evidence = [Evidence(f"{_place(one)}", (one.rank,)) for one in stopped]
        evidence += [Evidence("stacks of all ranks, innermost call last:\n" + "\n".join(lines(tree)))]
        if ranks.stack_note:
            evidence.append(
                Evidence(f"py-spy could not look, so the stacks are the interpreter's: {ranks.stack_note}")
            )
        if not late:
            return self.fail(
                f"all ranks wait in {step} and none is late",
                why="Every rank joined the collective and none gets an answer, so data does not pass between them: "
                "a firewall, the wrong network interface, or GPUs that cannot reach each other.",
                fix="NCCL_DEBUG=INFO ddpdoctor check --verbose\nlook at the interface and the transport it names, "
                "and choose another by NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME",
                evidence=tuple(evidence),
            )
        return self.fail(
            f"{ranks_phrase(late)} did not join {step}",
            why=f"The other ranks wait in {step} until {ranks_phrase(late)} joins, which "
            f"{'does' if len(late) == 1 else 'do'} not happen: the last frame of the stack shows where "
            f"{'it is' if len(late) == 1 else 'they are'} instead.",
            fix=f"see what {ranks_phrase(late)} {'does' if len(late) == 1 else 'do'} at the place named here, and "
            "bring every rank to the same collectives in the same order",
            ranks=late,
            where=_where(stopped, late),
            evidence=tuple(evidence),
        )


def _joined(trace: Trace) -> bool:
    """Whether some rank was in a process group, or nothing was recorded that could tell."""
    seen = [one.recording for one in trace.ranks if one.recording is not None]
    return not seen or any(event.action == "init" for one in seen for event in one.groups)


def _stacks(stopped: list[RankTrace]) -> tuple[Evidence, ...]:
    """Where each rank was, and the whole of it; the last lines of the output where no stack was taken."""
    seen = [one for one in stopped if one.stack]
    if not seen:
        return tuple(Evidence(quote(one.output[-1])[1:-1], (one.rank,)) for one in stopped if one.output)
    tree = merge({one.rank: one.stack for one in seen})
    return (
        *(Evidence(str(one.stack[-1]), (one.rank,)) for one in seen),
        Evidence("stacks of all ranks, innermost call last:\n" + "\n".join(lines(tree))),
    )


def _waited_for(stopped: list[RankRecord], late: tuple[int, ...]) -> str:
    waiting = [one for one in stopped if one.rank not in late] or stopped
    return (
        next((one.step for one in waiting if one.step), None) or waiting[0].current or "the first collective"
    )


def _place(one: RankRecord) -> str:
    where = f" at {one.stack[-1]}" if one.stack else ""
    return f"{one.step or one.current or 'before the first measurement'}{where}"


def _where(stopped: Sequence[RankRecord | RankTrace], late: tuple[int, ...]) -> Where | None:
    stack = next((one.stack for one in stopped if one.rank in late and one.stack), ())
    return where_of(stack[-1]) if stack else None


def _behind(stall: Stall) -> tuple[int, ...]:
    """Where the waits are in different collectives: the ranks that started fewest."""
    started = {
        wait.rank: wait.enqueued if wait.enqueued is not None else wait.sequence
        for wait in stall.waits
        if wait.rank is not None
    }
    counts = {count for count in started.values() if count is not None}
    if len(counts) < 2:
        return ()
    return tuple(sorted(rank for rank, count in started.items() if count == min(counts)))

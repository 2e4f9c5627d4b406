from collections.abc import Sequence

from ddpdoctor.blame import causes
from ddpdoctor.blame.frames import show, where_in
from ddpdoctor.blame.hang_analysis import late_ranks
from ddpdoctor.blame.wording import all_do, at, doing, for_seconds, others_wait, verb, who
from ddpdoctor.check import Evidence, Finding, Judgement, NotMeasured, Passed, Source, Where, reports
from ddpdoctor.failures import words
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.logs.stall import MISSED, judge_stall
from ddpdoctor.text import quote
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.recorded_job import HangCheck

_SAME_ORDER = "call the same collectives in the same order on every rank"
_CALLED_ALONE = (
    " Because only one rank waits, it may also have called what the others never call: code under a condition on the "
    "rank."
)


class CollectiveNotJoined(HangCheck):
    """Some ranks wait in a collective that others never join.

    What it finds:
        A rank that does not join a collective in which its peers wait: which rank, where it is instead, and which
        ranks wait where. Where every rank waits in the same collective, the connection between them is the likely
        cause.

    Why it matters:
        A collective ends when every rank of its group has joined it. One missing rank blocks all of them until the
        timeout of the process group, 10 or 30 minutes later, and then every rank reports the collective and none the
        cause.

    Example:
        if rank == 0:
            evaluate(model)          # the other ranks continue, and wait in the next all-reduce
        loss.backward()

    Fix:
        Call the same collectives in the same order on every rank. The stack of the missing rank shows the line
        where it is instead.
    """

    code = "DD301"
    title = "no rank keeps the others waiting"
    names_no_cause_in = (Source.LOG,)
    explained_by = (
        "DD315",
        *("DD004", "DD005", "DD011", "DD106", "DD204", "DD214", "DD225"),
        *("DD302", "DD303", "DD305", "DD308", "DD309"),
    )
    log_words = tuple(words(MISSED.pattern))

    @reports(causes.IsElsewhere)
    def _is_elsewhere(self, cause: causes.IsElsewhere) -> Finding:
        return self.fail(f"{all_do(cause.culprits, cause.state)}, while {others_wait(cause)}")

    @reports(causes.NeverCame)
    def _never_came(self, cause: causes.NeverCame) -> Finding:
        ranks, here = cause.culprits, cause.here
        waits = verb(here, "waits", "wait")
        did = "send to" if cause.end == "recv" else "receive from"
        headline = f"{who(ranks)} did not join {cause.what}, in which {who(here)} {waits}"
        if cause.end:
            them = verb(ranks, "it", "them")
            headline = f"{who(ranks)} did not {did} {who(here)}, which {waits} for {them} in {cause.end}"
        return self.fail(
            headline,
            why=f"A collective ends when every rank of its group has joined it, and {who(ranks)} "
            f"{verb(ranks, 'has', 'have')} not. The flight recorder contains calls only, so it does not show where "
            f"{verb(ranks, 'it is', 'they are')} now."
            + (_CALLED_ALONE if len(here) == 1 < len(ranks) else ""),
            fix=f"see where {who(ranks)} {verb(ranks, 'is', 'are')} now: ddpdoctor hang     # on its host\n"
            + _SAME_ORDER,
        )

    @reports(causes.LeftNoDump)
    def _left_no_dump(self, cause: causes.LeftNoDump) -> Finding:
        ranks, here = cause.culprits, cause.here
        return self.fail(
            f"{who(ranks)} left no dump, and {who(here)} {verb(here, 'waits', 'wait')} for "
            f"{verb(ranks, 'it', 'them')} in {cause.what}",
            why=f"{who(ranks).capitalize()} or {verb(ranks, 'its', 'their')} host died before or while the dumps were "
            "written, or the dumps were not collected.",
            fix=f"find out how {who(ranks)} ended: exit status, dmesg, the scheduler's log\n"
            "ddpdoctor explain LOG    # the output of that rank",
        )

    @reports(causes.NoPartner)
    def _no_partner(self, cause: causes.NoPartner) -> Finding:
        peer = cause.peer.rank
        return self.fail(
            f"rank {cause.rank} waits in {cause.what}{at(cause.at)} for rank {peer}, which {doing(cause.peer)}",
            why=f"A message needs a send and a receive. Rank {peer} never calls its part: a condition on the rank, or "
            "on a value that differs between the two, lets only one of them communicate.",
            fix="derive both calls from the same values: what one rank sends, the other receives, in the same order",
        )

    @reports(causes.Unseen)
    def _not_on_this_host(self, cause: causes.Unseen) -> Finding:
        ranks = cause.culprits
        was, has, runs = verb(ranks, "was", "were"), verb(ranks, "has", "have"), verb(ranks, "runs", "run")
        return self.fail(
            f"{others_wait(cause)} for {who(ranks)}, which {was} not seen on this host",
            why=f"{who(ranks).capitalize()} {was} never started, {has} ended, or {runs} on another host.",
            fix="look at their output; where they run on other hosts, capture every host, and judge all together:\n"
            "ddpdoctor hang --dump FOLDER     # on every host, into a shared folder\n"
            "ddpdoctor hang FOLDER",
        )

    @reports(causes.NobodyLate)
    def _nobody_late(self, cause: causes.NobodyLate) -> Finding:
        return self.fail(
            f"all of {who(cause.waiting)} wait in {cause.what}, and none is late",
            why="Every rank has joined, so data does not pass between them: a firewall, the wrong network interface, a "
            "link or a GPU that failed, or a GPU that is still busy with earlier work. Or they called it with tensors "
            "of different sizes, or use the groups that they share in different orders, which stacks do not show.",
            fix="ddpdoctor check     # tries the same path with a live group\nNCCL_DEBUG=INFO names interface and "
            "transport; NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME select another interface",
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.hung is None or ranks.stage is not Stage.MEASURE:
            if ranks.broken:
                raise NotMeasured(ranks.broken)
            return Passed(f"no rank kept the others waiting in {ranks.seconds:.1f} s")
        return [self._live_group_hangs(ranks, [rank for rank in ranks.ranks if not rank.finished])]

    def examine_ended(self, trace: Trace) -> Judgement:
        if not trace.timed_out or trace.out_of_time:
            trace.require_end()
            within = f" in {trace.seconds:.1f} s" if trace.ranks else ""
            return Passed(f"no rank kept the others waiting{within}")
        stopped = [rank for rank in trace.ranks if not rank.finished]
        if not stopped:
            return Passed("every rank had reached its end when the run was stopped")
        return [self._stopped(trace, stopped)]

    examine_log = judge_stall

    @reports(causes.LateInOutput)
    def _late_in_output(self, cause: causes.LateInOutput) -> Finding:
        late, others = who(cause.culprits), cause.waiting
        waited = f", in which {who(others)} waited{for_seconds(cause.seconds)}" if others else ""
        instead = f"; {verb(cause.culprits, 'it', 'they')} waited in {cause.instead}" if cause.instead else ""
        return self.fail(
            f"{late} did not join {cause.what}{waited}{instead}",
            fix=f"to see where {late} is the next time: ddpdoctor hang, or\n"
            "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...     # names the line of every rank",
        )

    def _stopped(self, trace: Trace, stopped: list[RankTrace]) -> Finding:
        """No rank waits for another, and none makes progress."""
        ranks, time = tuple(rank.rank for rank in stopped), f"{trace.seconds:.0f} s"
        headline = f"{who(ranks)} of the training run did not end within {time}"
        if not _joined(trace):
            headline = f"no rank had joined a process group when the run was stopped after {time}"
        return self.fail(
            headline,
            why="The processes made no progress: they wait for a lock, an answer or a file, or in init_process_group "
            "for ranks that were not started.",
            fix="see in the stacks which call does not return; a script that waits on purpose, or a busy machine, may "
            "only need more time: ddpdoctor check --timeout 600",
            ranks=ranks,
            where=_where(stopped, ranks),
            evidence=_stacks(stopped),
        )

    def _live_group_hangs(self, group: GroupRecord, stopped: list[RankRecord]) -> Finding:
        late = late_ranks({it.rank: it.stack for it in stopped}, {it.rank: it.steps for it in stopped})
        step, ranks = _waited_for(stopped, late), tuple(rank.rank for rank in stopped)
        states = [*(Evidence(_place(rank), (rank.rank,)) for rank in stopped), _merged_stacks(stopped)]
        if group.stack_note:
            note = f"py-spy could not attach, so these are the interpreter's own stacks: {group.stack_note}"
            states.append(Evidence(note))
        if not late:
            return self._nobody_late(causes.NobodyLate(what=step, waiting=ranks, states=tuple(states)))
        return self.fail(
            f"{who(late)} did not join {step}",
            why=f"The other ranks wait in {step} until {who(late)} {verb(late, 'joins', 'join')} it. The last frame of "
            f"the stack shows where {verb(late, 'it is', 'they are')} instead.",
            fix=f"see what {who(late)} {verb(late, 'does', 'do')} at this line, and {_SAME_ORDER}",
            ranks=late,
            where=_where(stopped, late),
            evidence=tuple(states),
        )


def _joined(trace: Trace) -> bool:
    """Whether some rank was in a process group, or nothing was recorded."""
    recordings = list(trace.recorded.values())
    return not recordings or any(recording.group_events("init") for recording in recordings)


def _stacks(stopped: list[RankTrace]) -> tuple[Evidence, ...]:
    """Where each rank was, and all stacks; the last lines of the output where no stack was taken."""
    ranks = [rank for rank in stopped if rank.stack]
    if not ranks:
        return tuple(Evidence(quote(rank.output[-1])[1:-1], (rank.rank,)) for rank in stopped if rank.output)
    return (*(Evidence(str(rank.stack[-1]), (rank.rank,)) for rank in ranks), _merged_stacks(ranks))


def _merged_stacks(ranks: Sequence[RankRecord | RankTrace]) -> Evidence:
    return Evidence(show({rank.rank: rank.stack for rank in ranks if rank.stack}))


def _waited_for(stopped: list[RankRecord], late: tuple[int, ...]) -> str:
    waiting = [rank for rank in stopped if rank.rank not in late] or stopped
    step = next((rank.step for rank in waiting if rank.step), None)
    return step or waiting[0].current or "the first collective"


def _place(rank: RankRecord) -> str:
    where = f" at {rank.stack[-1]}" if rank.stack else ""
    return f"{rank.step or rank.current or 'before the first measurement'}{where}"


def _where(stopped: Sequence[RankRecord | RankTrace], late: tuple[int, ...]) -> Where | None:
    return where_in(next((rank.stack for rank in stopped if rank.rank in late and rank.stack), ()))

from collections.abc import Sequence

from ddpdoctor.blame.causes import (
    IsElsewhere,
    LateInOutput,
    LeftNoDump,
    NeverCame,
    NobodyLate,
    NoPartner,
    Unseen,
)
from ddpdoctor.blame.frames import where_of
from ddpdoctor.blame.standings import late_ranks
from ddpdoctor.blame.tree import lines, merge
from ddpdoctor.blame.wording import all_do, at, cause_fields, doing, for_seconds, others_wait, verb, who
from ddpdoctor.check import reports
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.stall import judge_stall
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Source, Where
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.standstill_check import StandstillCheck

_SAME_ORDER = "bring every rank to the same collectives in the same order"


class CollectiveNotJoined(StandstillCheck):
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
    names_no_cause_in = (Source.LOG,)
    explained_by = (
        *("DD004", "DD005", "DD106", "DD204", "DD214", "DD225"),
        *("DD302", "DD303", "DD305", "DD308", "DD309"),
    )
    log_words = ("failed to pass monitored",)

    @reports(IsElsewhere)
    def _elsewhere(self, cause: IsElsewhere) -> Finding:
        return self.fail(
            f"{all_do(cause.culprits, cause.state)}, while {others_wait(cause)}",
            why="A collective ends when every rank of its group has joined it. The others give up at the timeout of "
            "the process group, and their errors speak of the collective and not of this line.",
            fix=f"see what it does at the line named here, and {_SAME_ORDER}",
            **cause_fields(cause),
        )

    @reports(NeverCame)
    def _never_came(self, cause: NeverCame) -> Finding:
        ranks, here = cause.culprits, cause.here
        waits = verb(here, "waits", "wait")
        alone = (
            " Since a single rank waits, it may as well be that it called what the others never call: code under a "
            "condition on the rank."
        )
        did = "send to" if cause.end == "recv" else "receive from"
        headline = f"{who(ranks)} did not join {cause.what}, in which {who(here)} {waits}"
        if cause.end:
            them = verb(ranks, "it", "them")
            headline = f"{who(ranks)} did not {did} {who(here)}, which {waits} for {them} in {cause.end}"
        return self.fail(
            headline,
            why="Who waits is the victim: a collective ends when every rank of its group has come, and "
            f"{verb(ranks, 'this one does', 'the culprits do')} not come. The flight recorder has calls only, so where "
            f"{verb(ranks, 'it is', 'they are')} now is not in it."
            + (alone if len(here) == 1 < len(ranks) else ""),
            fix=f"see where {who(ranks)} is now: ddpdoctor hang, on its host; its last collective is told here\n"
            + _SAME_ORDER,
            **cause_fields(cause),
        )

    @reports(LeftNoDump)
    def _left_no_dump(self, cause: LeftNoDump) -> Finding:
        ranks, here = cause.culprits, cause.here
        return self.fail(
            f"{who(ranks)} left no dump, and {who(here)} {verb(here, 'waits', 'wait')} for "
            f"{verb(ranks, 'it', 'them')} in {cause.what}",
            why=f"{verb(ranks, 'A rank that leaves no dump has', 'Ranks that leave no dump have')} died before the "
            "dumps were written, or its host has, and the others wait for ever. A dump that was only not collected "
            "looks the same.",
            fix=f"look for the end of {who(ranks)}: exit status, dmesg, the scheduler's log\n"
            "ddpdoctor explain LOG    # of its output",
            **cause_fields(cause),
        )

    @reports(NoPartner)
    def _no_partner(self, cause: NoPartner) -> Finding:
        peer = cause.peer.rank
        return self.fail(
            f"rank {cause.rank} waits in {cause.what}{at(cause.at)} for rank {peer}, which {doing(cause.peer)}",
            why=f"A message has two ends. Rank {peer} never calls the other one: a condition on the rank, or on a "
            "value that the two do not share, lets one of them communicate and the other not.",
            fix="let both ends follow from the same values: what one sends, the other receives, in the same order",
            **cause_fields(cause),
        )

    @reports(Unseen)
    def _unseen(self, cause: Unseen) -> Finding:
        ranks = cause.culprits
        was, has, runs = verb(ranks, "was", "were"), verb(ranks, "has", "have"), verb(ranks, "runs", "run")
        return self.fail(
            f"{others_wait(cause)} for {who(ranks)}, which {was} not seen on this host",
            why=f"{who(ranks).capitalize()} {was} never started, {has} ended, or {runs} on another host, where "
            f"{verb(ranks, 'it', 'they')} may be anywhere.",
            fix="look at their own output; where they run on other hosts, keep what each host shows, and judge it "
            "together:\nddpdoctor hang --dump FOLDER     # on every host, into a folder that they share\n"
            "ddpdoctor hang FOLDER",
            **cause_fields(cause),
        )

    @reports(NobodyLate)
    def _nobody_late(self, cause: NobodyLate) -> Finding:
        return self.fail(
            f"all of {who(cause.waiting)} wait in {cause.what}, and none is late",
            why="Every rank has come, and none gets an answer, so data does not pass between them: a firewall, the "
            "wrong network interface, a link or a GPU that failed, or one that has not finished what comes before. Or "
            "they came to it with tensors of different sizes, or in the groups that they share in different orders, "
            "which stacks do not show.",
            fix="ddpdoctor check     # tries the same path with a live group\nNCCL_DEBUG=INFO names interface and "
            "transport; NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME choose another",
            **cause_fields(cause),
        )

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.hung is None or ranks.stage is not Stage.MEASURE:
            if ranks.broken:
                raise NotMeasured(ranks.broken)
            return Passed(f"no rank kept the others waiting in {ranks.seconds:.1f} s")
        return [self._hang(ranks, [rank for rank in ranks.ranks if not rank.finished])]

    def examine_ended(self, trace: Trace) -> Judgement:
        if not trace.timed_out or trace.out_of_time:
            if trace.broken:
                raise NotMeasured(trace.broken)
            within = f" in {trace.seconds:.1f} s" if trace.ranks else ""
            return Passed(f"no rank kept the others waiting{within}")
        stopped = [rank for rank in trace.ranks if not rank.finished]
        if not stopped:
            return Passed("every rank had come to its end when the run was stopped")
        return [self._stopped(trace, stopped)]

    def examine_log(self, log: Log) -> Judgement:
        return judge_stall(self, log)

    @reports(LateInOutput)
    def _late_in_output(self, cause: LateInOutput) -> Finding:
        late, others = who(cause.culprits), cause.waiting
        waited = f", in which {who(others)} waited{for_seconds(cause.seconds)}" if others else ""
        return self.fail(
            f"{late} did not join {cause.what}{waited}",
            why=f"{late.capitalize()} left the common order of collectives, or was busy elsewhere: fewer batches, a "
            "branch on the rank's own data, a stuck DataLoader. Who waits is the victim.",
            fix=f"see where {late} was: py-spy dump of its process the next time, or\n"
            "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...     # names the line of every rank",
            **cause_fields(cause),
        )

    def _stopped(self, trace: Trace, stopped: list[RankTrace]) -> Finding:
        """No rank waits for another, and none goes on."""
        who, limit = ranks_phrase(rank.rank for rank in stopped), f"within {trace.seconds:.0f} s"
        return self.fail(
            f"{who} of the training run did not end {limit}"
            if _joined(trace)
            else f"no rank had joined a process group when the run was stopped after {trace.seconds:.0f} s",
            why="Processes were there and did nothing for a while: they wait for a lock, an answer or a file, or in "
            "init_process_group for ranks that nobody started.",
            fix="see in the stacks which call does not come back; a script that waits for something on purpose, and a "
            "busy machine, may only need more time: ddpdoctor check --timeout 600",
            ranks=tuple(rank.rank for rank in stopped),
            where=_where(stopped, tuple(rank.rank for rank in stopped)),
            evidence=_stacks(stopped),
        )

    def _hang(self, group: GroupRecord, stopped: list[RankRecord]) -> Finding:
        late = late_ranks({one.rank: one.stack for one in stopped}, {one.rank: one.steps for one in stopped})
        step, ranks = _waited_for(stopped, late), tuple(rank.rank for rank in stopped)
        tree = merge({rank.rank: rank.stack for rank in stopped if rank.stack})
        states = [
            *(Evidence(_place(rank), (rank.rank,)) for rank in stopped),
            Evidence("stacks of all ranks, innermost call last:\n" + "\n".join(lines(tree))),
        ]
        if group.stack_note:
            note = f"py-spy could not look, so the stacks are the interpreter's: {group.stack_note}"
            states.append(Evidence(note))
        if not late:
            return self._nobody_late(NobodyLate(what=step, waiting=ranks, states=tuple(states)))
        does = verb(late, "does", "do")
        return self.fail(
            f"{who(late)} did not join {step}",
            why=f"The other ranks wait in {step} until {who(late)} joins, which {does} not happen: the last frame of "
            f"the stack shows where {verb(late, 'it is', 'they are')} instead.",
            fix=f"see what {who(late)} {does} at the place named here, and {_SAME_ORDER}",
            ranks=late,
            where=_where(stopped, late),
            evidence=tuple(states),
        )


def _joined(trace: Trace) -> bool:
    """Whether some rank was in a process group, or nothing was recorded that could tell."""
    seen = [rank.recording for rank in trace.ranks if rank.recording is not None]
    return not seen or any(event.action == "init" for one in seen for event in one.groups)


def _stacks(stopped: list[RankTrace]) -> tuple[Evidence, ...]:
    """Where each rank was, and the whole of it; the last lines of the output where no stack was taken."""
    ranks = [rank for rank in stopped if rank.stack]
    if not ranks:
        return tuple(Evidence(quote(rank.output[-1])[1:-1], (rank.rank,)) for rank in stopped if rank.output)
    tree = merge({rank.rank: rank.stack for rank in ranks})
    return (
        *(Evidence(str(rank.stack[-1]), (rank.rank,)) for rank in ranks),
        Evidence("stacks of all ranks, innermost call last:\n" + "\n".join(lines(tree))),
    )


def _waited_for(stopped: list[RankRecord], late: tuple[int, ...]) -> str:
    waiting = [rank for rank in stopped if rank.rank not in late] or stopped
    return (
        next((one.step for one in waiting if one.step), None) or waiting[0].current or "the first collective"
    )


def _place(rank: RankRecord) -> str:
    where = f" at {rank.stack[-1]}" if rank.stack else ""
    return f"{rank.step or rank.current or 'before the first measurement'}{where}"


def _where(stopped: Sequence[RankRecord | RankTrace], late: tuple[int, ...]) -> Where | None:
    stack = next((one.stack for one in stopped if one.rank in late and one.stack), ())
    return where_of(stack[-1]) if stack else None

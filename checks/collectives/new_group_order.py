from collections.abc import Mapping
from dataclasses import replace

from ddpdoctor.blame.causes import GroupCircle, GroupMadeAlone, GroupsDisagree, GroupsOutOfOrder, Members
from ddpdoctor.blame.wording import verb, who
from ddpdoctor.check import Evidence, Finding, Judgement, Level, Passed, reports
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.text import by_state, fold_ranks, plural, quote
from ddpdoctor.trace import Trace
from ddpdoctor.trace.joint_training import first_difference, groups_made, out_of_order
from ddpdoctor.trace.recorded_job import HangCheck

_MOST_RANKS = 8
"""Of a circle, in the headline."""


class NewGroupOrder(HangCheck):
    """Ranks create process groups in different orders, or only the members create them.

    What it finds:
        Ranks that called new_group for different members at the same position, with the line; and, in a job that
        hangs, ranks that called it alone, or that wait for each other in collectives of different groups.

    Why it matters:
        Every rank of the job has to call new_group for every group, also for groups that it is not a member of, and
        in the same order, because groups are numbered and matched by the order of the calls alone. Otherwise one
        number means different groups on different ranks, which wait for each other until the timeout, or fail with a
        closed connection.

    Example:
        if rank in (0, 1):
            group = dist.new_group([0, 1])      # ranks 2 and 3 never call it

    Fix:
        Create all groups on every rank, outside any condition on the rank, and select one afterwards:
            pairs = [[0, 1], [2, 3]]
            groups = [dist.new_group(pair) for pair in pairs]
            group = groups[rank // 2]
        Or create it on its members only: dist.new_group([0, 1], use_local_synchronization=True).
    """

    code = "DD309"
    title = "every rank creates the same process groups"
    explained_by = ("DD005", "DD315")

    def examine_ended(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        row = first_difference({rank: groups_made(recording) for rank, recording in recordings.items()})
        if row and all(row.values()):
            finding = self._groups_out_of_order(out_of_order({rank: it for rank, it in row.items() if it}))
            return [finding if trace.broken else replace(finding, level=Level.WARN)]
        trace.require_end()
        if row:
            return [replace(self._group_made_alone(_made_alone(row)), level=Level.WARN)]
        most = max(len(recording.group_events("new_group")) for recording in recordings.values())
        self.require(most, "the script creates no process groups")
        return Passed(f"the ranks created {plural(most, 'process group')}")

    @reports(GroupsOutOfOrder)
    def _groups_out_of_order(self, cause: GroupsOutOfOrder) -> Finding:
        members, first = cause.members, cause.culprits[0]
        other = next(rank for rank in members if members[rank] != members[first])
        with_first = [rank for rank in cause.culprits if members[rank] == members[first]]
        orders = by_state({rank: f"new_group for {_for(ranks)}" for rank, ranks in members.items()})
        return self.fail(
            f"{who(with_first)} called new_group for {_for(members[first])} where rank {other} called it for "
            f"{_for(members[other])}",
            evidence=(*orders, *cause.states),
        )

    @reports(GroupMadeAlone)
    def _group_made_alone(self, cause: GroupMadeAlone) -> Finding:
        called, others = cause.culprits, who(cause.waiting)
        rest = f" for {_for(cause.members)}" if cause.made else f", and {verb(called, 'waits', 'wait')} there"
        return self.fail(f"only {who(called)} called new_group{rest}, and {others} did not")

    @reports(GroupCircle)
    def _group_circle(self, cause: GroupCircle) -> Finding:
        share_members = len({members for members, _ in cause.groups.values()}) == 1
        shown = {
            rank: (f"group {quote(name)} of " if share_members else "") + f"ranks {fold_ranks(members)}"
            for rank, (members, name) in list(cause.groups.items())[:_MOST_RANKS]
        }
        chain = ", ".join(f"rank {rank} for {group}" for rank, group in shown.items())
        waits = by_state({rank: f"in a collective of {group}" for rank, group in shown.items()})
        return self.fail(
            f"{who(cause.culprits)} wait for each other in the collectives of different groups: {chain}",
            why="Each of these collectives waits for a member that is in a collective of another group, in a circle."
            + (" torch names groups in the order in which new_group made them." if share_members else ""),
            fix="use the groups in the order in which they were created, on every rank; or start all collectives with "
            "async_op=True, and wait for them afterwards",
            evidence=(*waits, *cause.states),
        )

    @reports(GroupsDisagree)
    def _groups_disagree(self, cause: GroupsDisagree) -> Finding:
        (members, most), (other, fewer), *_ = cause.known
        return self.fail(
            f"group {cause.group} is of {who(members)} on {who(most)}, and of {who(other)} on {who(fewer)}",
            evidence=tuple(Evidence(f"group {cause.group} is of {who(it)}", on) for it, on in cause.known),
        )


def _made_alone(row: Mapping[int, GroupEvent | None]) -> GroupMadeAlone:
    """Of ranks that have all come to their end, some of which called new_group once more."""
    made = {rank: event for rank, event in row.items() if event}
    first, rest = next(iter(made.values())), tuple(rank for rank in row if rank not in made)
    return GroupMadeAlone(culprits=tuple(made), waiting=rest, where=first.at, made=True, members=first.ranks)


def _for(ranks: Members) -> str:
    return f"ranks {fold_ranks(ranks)}" if ranks and len(ranks) > 1 else f"rank {fold_ranks(ranks or ())}"

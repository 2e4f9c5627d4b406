from dataclasses import replace

from ddpdoctor.blame.causes import (
    GroupCircle,
    GroupMadeAlone,
    GroupsDisagree,
    GroupsOutOfOrder,
    Members,
)
from ddpdoctor.blame.wording import cause_fields, verb, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Level, Passed, Skipped
from ddpdoctor.outliers import by_state
from ddpdoctor.text import fold_ranks, plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.new_groups import first_difference, groups_made, out_of_order
from ddpdoctor.trace.standstill_check import StandstillCheck

_WHY = (
    "new_group is a collective of the whole job: every rank has to call it for every group, in the same order, also "
    "for groups that it is no member of. "
)
_FIX = (
    "on every rank, outside of any condition on the rank:\n"
    "groups = [dist.new_group(ranks) for ranks in all_of_them]     # in one order\n"
    "group = next(g for g, ranks in zip(groups, all_of_them) if rank in ranks)"
)
_SHOWN = 8


class NewGroupOrder(StandstillCheck):
    """Ranks make process groups in different orders, or only the members make them.

    What it finds:
        Ranks that called new_group for other members than the rest at the same position, and, in a job that stands
        still, ranks that called it alone, or that wait for each other in the collectives of different groups: the
        ranks and the line.

    Why it matters:
        new_group is a collective of the whole job. Every rank has to call it for every group, also for groups that it
        is no member of, and in the same order, since groups are matched by their order alone. What then waits for
        ever, or fails with a closed connection, are the collectives of other ranks.

    Example:
        if rank in (0, 1):
            group = dist.new_group([0, 1])      # ranks 2 and 3 never come

    Fix:
        Make all groups on every rank, and choose afterwards:
            pairs = [[0, 1], [2, 3]]
            groups = [dist.new_group(pair) for pair in pairs]
            group = groups[rank // 2]
        Or let the members alone agree: dist.new_group([0, 1], use_local_synchronization=True).
    """

    code = "DD309"
    name = "new-group-order"
    family = Family.COLLECTIVES
    title = "every rank makes the same process groups"
    explained_by = ("DD005",)

    def examine_ended(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        row = first_difference({rank: groups_made(recording) for rank, recording in recordings.items()})
        if row and all(row.values()):
            finding = self._out_of_order(out_of_order({rank: event for rank, event in row.items() if event}))
            return [finding if trace.broken else replace(finding, level=Level.WARN)]
        if trace.broken:
            raise NotMeasured(trace.broken)
        made = [group for seen in recordings.values() for group in seen.groups if group.action == "new_group"]
        if not made:
            return Skipped("the script makes no groups of its own")
        most = max(sum(group.action == "new_group" for group in seen.groups) for seen in recordings.values())
        return Passed(f"the ranks made {plural(most, 'process group')} and came out of each")

    @reports(GroupsOutOfOrder)
    def _out_of_order(self, cause: GroupsOutOfOrder) -> Finding:
        members, first = cause.members, cause.culprits[0]
        other = next(rank for rank in members if members[rank] != members[first])
        alike = [rank for rank in cause.culprits if members[rank] == members[first]]
        orders = by_state({rank: f"new_group for {_for(ranks)}" for rank, ranks in members.items()})
        return self.fail(
            f"{who(alike)} called new_group for {_for(members[first])} where rank {other} called it for "
            f"{_for(members[other])}",
            why=f"{_WHY}Groups are matched by their order alone, so these two are taken for one, and its members do "
            "not find each other.",
            fix=_FIX,
            **{**cause_fields(cause), "evidence": (*orders, *cause.states)},
        )

    @reports(GroupMadeAlone)
    def _made_alone(self, cause: GroupMadeAlone) -> Finding:
        called, others = cause.culprits, who(cause.waiting)
        there = (
            f" for {_for(cause.members)}" if cause.made else f", and {verb(called, 'waits', 'wait')} there"
        )
        return self.fail(
            f"{who(called)} alone called new_group{there}, and {others} did not",
            why=f"{_WHY}From there on {who(called)} and {others} count groups differently, and the next group, or this "
            "one, waits for ranks that do not come.",
            fix=_FIX,
            **cause_fields(cause),
        )

    @reports(GroupCircle)
    def _circle(self, cause: GroupCircle) -> Finding:
        shown = {rank: f"ranks {fold_ranks(group)}" for rank, group in list(cause.groups.items())[:_SHOWN]}
        chain = ", ".join(f"rank {rank} for {group}" for rank, group in shown.items())
        waits = (Evidence(f"in a collective of {group}", (rank,)) for rank, group in shown.items())
        return self.fail(
            f"{who(cause.culprits)} wait for each other in the collectives of different groups: {chain}",
            why="Each of these collectives waits for a member that is in the collective of another group, in a circle. "
            "Ranks that share groups have to use them in one order.",
            fix="use the groups in the order in which they were made, on every rank; or start all with async_op=True, "
            "and wait for them afterwards",
            **{**cause_fields(cause), "evidence": (*waits, *cause.states)},
        )

    @reports(GroupsDisagree)
    def _disagree(self, cause: GroupsDisagree) -> Finding:
        (members, most), (other, fewer), *_ = cause.known
        return self.fail(
            f"group {cause.group} is of {who(members)} on {who(most)}, and of {who(other)} on {who(fewer)}",
            why="Groups are numbered in the order in which a rank makes them, so ranks that make them in different "
            "orders, or leave some out, mean different groups by one number, and wait in them for each other.",
            fix="call dist.new_group for every group on every rank, in the same order, also where a rank is no member",
            **{
                **cause_fields(cause),
                "evidence": tuple(
                    Evidence(f"group {cause.group} is of {who(one)}", by) for one, by in cause.known
                ),
            },
        )


def _for(ranks: Members) -> str:
    return f"ranks {fold_ranks(ranks)}" if ranks and len(ranks) > 1 else f"rank {fold_ranks(ranks or ())}"

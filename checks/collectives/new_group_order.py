from dataclasses import replace

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Family, Judgement, Level, Passed, Skipped
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.verdict import claim, finding_of
from ddpdoctor.trace.verdict.groups import first_difference, made_by, other_members


class NewGroupOrder(Check):
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

    def examine_run(self, trace: Trace) -> Judgement:
        hung = claim(self, trace)
        if hung:
            return hung
        recordings = trace.recordings()
        row = first_difference({rank: made_by(seen) for rank, seen in recordings.items()})
        if row and all(row.values()):
            found = finding_of(other_members({rank: one for rank, one in row.items() if one}))
            return [found if trace.broken else replace(found, level=Level.WARN)]
        if trace.broken:
            raise NotMeasured(trace.broken)
        made = [one for seen in recordings.values() for one in seen.groups if one.action == "new_group"]
        if not made:
            return Skipped("the script makes no groups of its own")
        most = max(sum(one.action == "new_group" for one in seen.groups) for seen in recordings.values())
        return Passed(f"the ranks made {plural(most, 'process group')} and came out of each")

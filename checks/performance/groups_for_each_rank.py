from collections import Counter

from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.text import by_state, plural
from ddpdoctor.trace import Trace, grouped, on_each_rank
from ddpdoctor.trace.joint_training import groups_made

ENOUGH = 32
"""Ranks from which it matters."""


class GroupsForEachRank(Check):
    """One line makes a process group for each rank, or more.

    What it finds:
        A line that calls new_group at least as often as there are ranks, in jobs of 32 ranks or more. A group for each
        host, or for each pair of ranks, is fewer and is left alone.

    Why it matters:
        Every rank has to call new_group for every group, and each call exchanges addresses through the store or makes
        a communicator with its own buffers. What takes a moment on 8 ranks takes minutes on 512, at every start, and
        NCCL runs out of memory or file descriptors.

    Example:
        groups = [dist.new_group([rank, 0]) for rank in range(dist.get_world_size())]

    Fix:
        Use send and recv between two ranks, which need no group; make a group by its members alone; or make the groups
        of one dimension at once:
            group = dist.new_group(members, use_local_synchronization=True)    # called by its members
            mesh = init_device_mesh("cuda", (hosts, gpus_on_each), mesh_dim_names=("host", "gpu"))
    """

    code = "DD607"
    title = "process groups are fewer than ranks"

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.recordings()
        ranks = trace.world_size or len(recordings)
        self.require(ranks >= ENOUGH, f"it matters from {ENOUGH} ranks on")
        lines = grouped(on_each_rank(recordings, groups_made), lambda made: made[1].at)
        counts = [(of_line[0][1].at, Counter(rank for rank, _ in of_line)) for of_line in lines]
        often = [(at, calls) for at, calls in counts if max(calls.values()) >= ranks]
        for at, calls in often:
            most = max(calls.values())
            yield self.warn(
                f"one line makes {plural(most, 'process group')} in a job of {plural(ranks, 'rank')}",
                where=at,
                evidence=by_state(calls, lambda count: plural(count, "call")),
            )
        yield Passed(f"no line makes a process group for each of {ranks} ranks")

from collections.abc import Mapping

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Passed
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.joint_training import store_place

_CLOSED = r"RendezvousClosedError|rendezvous .{0,80}(?:has been|is) closed"
_TOO_MANY = (
    r"store.based barrier.{0,200}world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)"
)


class RendezvousShared(Check):
    """Two launches share one rendezvous, or two process groups of one launch do, one after the other.

    What it finds:
        More ranks in the store than the job has, or a rendezvous that was closed before this job joined it. Or ranks
        that destroyed their default process group and initialized another one with the same store.

    Why it matters:
        Ranks of two launches join the same store: a torchrun for each task of srun, a launcher inside a launcher, two
        jobs with the same address and port, or a job that uses the id of an earlier one. Neither group is complete.
        Within one launch, a second process group finds the keys of the first one in the store, with the addresses of
        connections that are closed: ranks wait for each other, or lose their connections.

    Example:
        srun --ntasks 8 torchrun --nproc-per-node 8 ... starts eight launchers on each node, and all join one store.
        A cross-validation that initializes and destroys the process group for each fold.

    Fix:
        Start one launcher on each node, and give each job its own port and id:
            srun --ntasks-per-node 1 torchrun --rdzv-id $SLURM_JOB_ID --rdzv-endpoint NODE0:PORT ...
        Initialize the process group once for all folds, and destroy it after the last one.
    """

    code = "DD011"
    title = "the rendezvous belongs to one process group of one launch"
    raises = (_CLOSED, _TOO_MANY)

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings_of_several()
        again = {rank: events for rank, it in recordings.items() if (events := _joined_again(it))}
        if again:
            return self._joined_again(again, broke=_lost_each_other(trace, again))
        trace.require_end()
        return Passed(f"{ranks_phrase(recordings)} used each store for one process group")

    def _joined_again(self, again: Mapping[int, tuple[GroupEvent, GroupEvent]], *, broke: bool) -> Finding:
        first, second = next(iter(again.values()))
        ranks = tuple(again)
        headline = f"{ranks_phrase(ranks)} initialized the default process group again with the store of the first one"
        report = self.fail if broke else self.warn
        return report(
            headline if broke else f"{headline}, which went well this time",
            where=second.at,
            evidence=(Evidence(f"first initialized at {store_place(first)}", ranks, first.at),),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_TOO_MANY)
        if reason and int(reason.match["came"]) > int(reason.match["all"]):
            headline = f"{reason.match['came']} ranks joined a store made for {reason.match['all']}"
            return self.fail(headline, confidence=Confidence.LIKELY, **log_fields(reason))
        return self.fail(
            "the rendezvous is closed: another launcher that used it has ended",
            why="A launcher that ends closes the rendezvous. No other can join it then, nor restart its ranks.",
            fix="see in the output of the other hosts why their launcher ended first, then start all of them anew:\n"
            "torchrun --rdzv-id NEW ...     # an id or a port that no job has used",
            **log_fields(log.reason(_CLOSED)),
        )


def _joined_again(recording: Recording) -> tuple[GroupEvent, GroupEvent] | None:
    """The group that a rank destroyed and the first attempt to make another one in its store; None where none did."""
    joinings = recording.joinings
    made: dict[str, GroupEvent] = {}
    destroyed: dict[str, GroupEvent] = {}
    for event in recording.groups:
        if event.action == "destroy":
            destroyed |= made
            made = {}
        elif event in joinings and "store" not in event.arguments:
            address = store_place(event)
            if address in destroyed:
                return destroyed[address], event
            if event.action == "init" and event.size != 1:
                made[address] = event
    return None


def _lost_each_other(trace: Trace, again: Mapping[int, object]) -> bool:
    """Whether the run hangs, or broke where a rank that joined again lost its peers."""
    first = trace.first_to_break()
    if first is None or trace.timed_out:
        return trace.timed_out and not trace.out_of_time
    return first.rank in again and (first.is_victim or first.did_not_meet)

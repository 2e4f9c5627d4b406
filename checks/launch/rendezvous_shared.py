from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Confidence, Judgement

_CLOSED = r"RendezvousClosedError|rendezvous .{0,80}(?:has been|is) closed"
_TOO_MANY = (
    r"store.based barrier.{0,200}world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)"
)


class RendezvousShared(Check):
    """Two launches share one rendezvous, or join one that an earlier launch left.

    What it finds:
        More ranks in the store than the job has, or a rendezvous that was closed before this job joined it.

    Why it matters:
        Ranks of two launches join the same store: a torchrun for each task of srun, a launcher inside a launcher, two
        jobs with the same address and port, or a job that uses the id of an earlier one. Neither group is complete.

    Example:
        srun --ntasks 8 torchrun --nproc-per-node 8 ... starts eight launchers on each node, and all join one store.

    Fix:
        Start one launcher on each node, and give each job its own port and id:
            srun --ntasks-per-node 1 torchrun --rdzv-id $SLURM_JOB_ID --rdzv-endpoint NODE0:PORT ...
    """

    code = "DD011"
    title = "the rendezvous belongs to one launch"
    raises = (_CLOSED, _TOO_MANY)
    log_words = ("store based barrier", "store-based barrier", "RendezvousClosedError")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_TOO_MANY)
        if reason and int(reason.match["came"]) > int(reason.match["all"]):
            headline = f"{reason.match['came']} ranks joined a store made for {reason.match['all']}"
        else:
            reason = log.reason(_CLOSED)
            headline = "the rendezvous was closed before this job joined it"
        return self.fail(headline, confidence=Confidence.LIKELY, **log_fields(reason))

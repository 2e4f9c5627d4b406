from ddpdoctor.check import Check
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Confidence, Judgement

_CLOSED = r"RendezvousClosedError|rendezvous .{0,80}(?:has been|is) closed"
_TOO_MANY = (
    r"store.based barrier.{0,200}world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)"
)


class RendezvousShared(Check):
    """Two launches share one rendezvous, or join one that an earlier launch left.

    What it finds:
        More ranks in the store than the job has, or a rendezvous that was closed before this job came to it.

    Why it matters:
        Ranks of two launches take each other for peers: the job waits for nobody, or for ranks that belong elsewhere.

    Example:
        srun --ntasks 8 torchrun --nproc-per-node 8 ... starts eight launchers on each node, and all join one store.

    Fix:
        One launcher on each node (srun --ntasks-per-node 1), a port and an id of its own for each job:
            torchrun --rdzv-id $SLURM_JOB_ID --rdzv-endpoint NODE0:PORT ...
    """

    code = "DD011"
    title = "the rendezvous belongs to one launch"
    raises = (_CLOSED, _TOO_MANY)
    log_words = ("store based barrier", "store-based barrier", "RendezvousClosedError")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_TOO_MANY)
        if reason and int(reason.match["came"]) > int(reason.match["all"]):
            headline = f"{reason.match['came']} ranks joined a store made for {reason.match['all']}"
            why = "Ranks of another launch joined too: a torchrun for each task of srun, a launcher inside a launcher, "
        else:
            reason = log.search(_CLOSED)
            if reason is None:
                return NOT_IN_OUTPUT
            headline = "the rendezvous was closed before this job joined it"
            why = "An earlier job with the same id has ended there and left its state, or another node gave up: "
        return self.fail(
            headline,
            why=f"{why}or two jobs with one address and port.",
            fix="srun --ntasks-per-node 1 torchrun ...     # one launcher on each node\n"
            "torchrun --rdzv-id $SLURM_JOB_ID --master-port PORT ...     # an id and a port of its own",
            confidence=Confidence.LIKELY,
            **log_fields(reason),
        )

from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Judgement

_NOT_INITIALIZED = r"Default process group has not been initialized"


class GroupNotInitialized(Check):
    """A process group is used before it is initialized, or in a run without one.

    What it finds:
        A call of torch.distributed, mostly inside SyncBatchNorm, DistributedSampler or DistributedDataParallel, in a
        process that has not called init_process_group.

    Why it matters:
        The script ends at once. A program that runs distributed and alone from one configuration meets it when it is
        started without a launcher.

    Example:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)      # and python train.py on one GPU

    Fix:
        Call dist.init_process_group before, or start the script as a job of one rank:
            torchrun --standalone --nproc-per-node 1 train.py
        Without a group use plain BatchNorm and a plain sampler.
    """

    code = "DD021"
    title = "the process group exists before it is used"
    raises = (_NOT_INITIALIZED,)

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_NOT_INITIALIZED)
        return self.fail(
            "the process group was used before it was initialized",
            why="The call needs the default group, and this process has none: init_process_group comes "
            "later, was skipped, or the script was not started by a launcher.",
            fix="torchrun --standalone --nproc-per-node 1 train.py     # a group of one\n"
            "or no SyncBatchNorm and DistributedSampler in a run without a group: if dist.is_initialized(): ...",
            **log_fields(reason),
        )

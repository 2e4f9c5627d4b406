from ddpdoctor.check import Check
from ddpdoctor.failures import Message


class GroupNotInitialized(Check):
    """A process group is used before init_process_group was called, or in a run without one.

    What it finds:
        A call of torch.distributed, mostly inside SyncBatchNorm, DistributedSampler or DistributedDataParallel, in a
        process that has not called init_process_group.

    Why it matters:
        The call needs the default process group, and this process has none: init_process_group comes later, was
        skipped, or the script was started without a launcher. The script ends at once.

    Example:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)      # and python train.py on one GPU

    Fix:
        Call dist.init_process_group first, or start the script as a job with one rank:
            torchrun --standalone --nproc-per-node 1 train.py
        Without a process group, use BatchNorm and a plain sampler: if dist.is_initialized(): ...
    """

    code = "DD021"
    title = "the process group exists before it is used"
    messages = (
        Message(
            r"Default process group has not been initialized",
            headline="the process group was used before it was initialized",
        ),
    )

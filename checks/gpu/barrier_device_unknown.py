from ddpdoctor.check import Check, Confidence, Judgement, Passed, Role
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields


class BarrierDeviceUnknown(Check):
    """A barrier had to guess the GPU of its rank.

    What it finds:
        torch's warning that the device of a rank is unknown, in an output that ends there.

    Why it matters:
        A barrier is an all-reduce on a GPU. Without a device it uses the GPU with the rank's number; if the rank uses
        another one, or cannot see that one, its peers hang. If training continues, the guess was right.

    Example:
        dist.init_process_group("nccl")
        dist.barrier()                        # before torch.cuda.set_device

    Fix:
        Set the device before the first collective, and pass it to the process group:
            torch.cuda.set_device(local_rank)
            dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    """

    code = "DD810"
    title = "each rank sets its GPU before its first barrier"
    log_words = ("currently unknown", "Guessing device ID")

    def examine_log(self, log: Log) -> Judgement:
        lines = log.find(
            r"using GPU \d+ (?:to perform barrier )?as devices? used by this process (?:are|is) currently unknown"
            r"|Guessing device ID based on global rank"
        )
        if not lines:
            return NOT_IN_OUTPUT
        later = any((wait.sequence or 0) > 1 for wait in log.waits)
        if log.training or later:
            return Passed("barriers guessed the GPU of their rank, and training went on")
        report = self.fail if log.hung or log.waits else self.info
        return report(
            "the first barrier guessed the GPU of its rank, and nothing followed",
            confidence=Confidence.LIKELY,
            **log_fields(*lines[:8], role=Role.CAUSE if log.hung else Role.MESSENGER),
        )

from ddpdoctor.check import Check
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Confidence, Evidence, Judgement
from ddpdoctor.redact import show_value

VARIABLE = "NCCL_IB_GID_INDEX"
_UNANSWERED = r"Got completion .{0,80}?(?:error|status=?) ?(?:IBV_WC_\w+\()?12\b"
_REFUSED = (
    r"ibv_modify_qp failed.{0,40}(?:Invalid argument|timed out|unreachable|No such device|No data available)"
)


class IbGidIndex(Check):
    """The GID of a RoCE or InfiniBand port does not reach the other node.

    What it finds:
        A connection between two adapters that never carried anything: transfers end with status 12 (no answer)
        before any training step, or the queue pair cannot be brought up.

    Why it matters:
        A RoCE port has several addresses (GIDs): link-local or routable, for RoCE v1 or v2. NCCL before 2.21 takes the
        first, which routers and some switches do not carry. NCCL calls it a network error or a remote process exit.

    Example:
        NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129

    Fix:
        Take the index of the routable RoCE v2 address, the same on all nodes:
            show_gids; export NCCL_IB_GID_INDEX=3
    """

    code = "DD703"
    title = "RDMA adapters reach each other"
    raises = (_UNANSWERED, _REFUSED)
    log_words = ("Got completion", "ibv_modify_qp")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_UNANSWERED, _REFUSED)
        if reason is None or log.training:  # a connection that has worked was lost, which is DD705
            return NOT_IN_OUTPUT
        used = {value for facts in log.nccl.values() for name, value in facts.variables if name == VARIABLE}
        details = log_fields(reason)
        if used:
            shown = show_value(VARIABLE, ", ".join(sorted(used)))
            details["evidence"] = (*details["evidence"], Evidence(f"{VARIABLE}={shown} in this run"))
        return self.fail(
            "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
            why="The queue pairs were set up and the first transfer was not answered: mostly a GID that the other "
            "node's network does not route. 'remote process exited' in the same message is NCCL's guess.",
            fix="show_gids     # the index of the RoCE v2 entry with the node's IPv4 address, on every node\n"
            f"export {VARIABLE}=3\nib_write_bw -d mlx5_0 -x 3 NODE     # tries the path without NCCL",
            confidence=Confidence.LIKELY,
            **details,
        )

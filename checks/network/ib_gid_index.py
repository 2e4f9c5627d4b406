from ddpdoctor.check import Check, Confidence, Evidence, Judgement
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.logs.nccl_facts import adapter_of
from ddpdoctor.text import show_variable

VARIABLE = "NCCL_IB_GID_INDEX"
_UNANSWERED = r"Got completion .{0,80}?(?:error|status=?) ?(?:IBV_WC_\w+\()?12\b"
_REFUSED = (
    r"ibv_modify_qp failed.{0,40}(?:Invalid argument|timed out|unreachable|No such device|No data available)"
)


class IbGidIndex(Check):
    """The GID of a RoCE or InfiniBand port does not reach the other node.

    What it finds:
        A connection between two adapters that never worked: transfers end with status 12 (no answer) before any
        training step, or the queue pair cannot be created.

    Why it matters:
        A RoCE port has several addresses (GIDs): link-local or routable, for RoCE v1 or v2. NCCL before 2.21 uses the
        first one, which routers and some switches do not forward. NCCL reports a network error, or "remote process
        exited", which is a guess.

    Example:
        NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129

    Fix:
        Use the index of the RoCE v2 entry with the node's IPv4 address, on every node:
            show_gids; export NCCL_IB_GID_INDEX=3
            ib_write_bw -d mlx5_0 -x 3 NODE          # tries the path without NCCL
    """

    code = "DD703"
    title = "RDMA adapters reach each other"
    raises = (_UNANSWERED, _REFUSED)

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_UNANSWERED, _REFUSED)
        if reason is None or log.training:  # DD705 reports a connection that worked and was lost
            return NOT_IN_OUTPUT
        details, values = log_fields(reason), log.nccl_values(VARIABLE)
        if values:
            shown = Evidence(f"{show_variable(VARIABLE, values)} in this run")
            details["evidence"] = (*details["evidence"], shown)
        adapter = adapter_of(log, _UNANSWERED)
        headline = "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before"
        if adapter:
            headline = f"transfers{adapter} got no answer, and nothing had passed before"
        return self.fail(headline, confidence=Confidence.LIKELY, **details)

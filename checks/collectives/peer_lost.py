import re

from ddpdoctor.check import Check, Confidence, Finding, Judgement, Role, Source
from ddpdoctor.failures import Says, pattern, says
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Ended, Line, Log, Raised, log_fields
from ddpdoctor.logs.secondary_errors import is_of_another_service
from ddpdoctor.logs.stall import find_stall
from ddpdoctor.text import ranks_phrase

_NAMED_RANK = re.compile(r"(?:from|check) rank (\d+)\b|to rank (\d+)\b.{0,40}clos")
_ADDRESS = re.compile(r"(?:peer|remote=?|to) \[?([\w.:-]{1,80}?)[\]<]")
_DEAD_WORKER = r"DataLoader worker .{0,200}exited unexpectedly"
_MOST_SOURCES = 4
"""Lines and exceptions on which a finding rests."""


class PeerLost(Check):
    """A rank was lost, and the output contains only the errors of the other ranks.

    What it finds:
        "Connection closed by peer", ncclRemoteError, "Socket recv failed" and similar errors, in an output that does
        not show why the peer was lost: which ranks report them, and which rank they name.

    Why it matters:
        The rank that reports a closed connection is itself healthy. The cause is in the output, the exit status or the
        node's kernel log of its peer, which does not report this error.

    Example:
        Rank 3 is killed on another node; ranks 0-2 report "Connection closed by peer".

    Fix:
        Keep the output of every rank. Of the rank that does not report the error, look at its last output, at its exit
        code in the launcher's summary, and on its node at the kernel's log:
            torchrun --log-dir logs --tee 3 ...
            dmesg -T | grep -i -e killed -e xid
    """

    code = "DD311"
    title = "no rank is lost"
    names_no_cause_in = (Source.LOG,)
    log_words = (
        "closed by",
        "Connection reset",
        "onnection closed",
        "emote process exited",
        "ncclRemoteError",
        "recv failed",
    )

    def examine_log(self, log: Log) -> Judgement:
        if reason := log.search(_DEAD_WORKER):
            return [self._lost_worker(*reason.sources)]
        errors, stall = _errors_of_survivors(log), find_stall(log)
        if not errors or not log.failed or (stall and stall.missing):  # DD301 names the missing rank
            return NOT_IN_OUTPUT
        texts = [error.text for error in errors]
        groups = (group for text in texts for match in _NAMED_RANK.findall(text) for group in match)
        named = sorted({int(rank) for rank in groups if rank})
        address = next((match[1] for text in texts if (match := _ADDRESS.search(text))), "")
        survivors = {error.rank for error in errors if error.rank is not None} - set(named)
        worker = next((error for error in errors if isinstance(error, Raised) and _is_of_loader(error)), None)
        if worker:
            return [self._lost_worker(worker)]
        ended = _ended_without_exception(log) if survivors and not named else None
        if ended and (others := survivors - {ended.rank}):
            return [self._ended(ended, others, errors)]
        lost = ranks_phrase(named) if named else f"the peer at {address}" if address else "a peer"
        return self.fail(
            f"the connection to {lost} was lost; the output contains {ranks_phrase(survivors, 'survivors')} only",
            **log_fields(*errors[:_MOST_SOURCES], role=Role.MESSENGER, ranks=named),
        )

    def _ended(self, ended: Ended, survivors: set[int], errors: list[Line | Raised]) -> Finding:
        sources = (ended, *errors[: _MOST_SOURCES - 1])
        details = log_fields(*sources, role=Role.MESSENGER, ranks=() if ended.rank is None else (ended.rank,))
        details["where"] = None  # the traceback is a survivor's
        return self.fail(
            f"{ended.who} ended with exit status {ended.code} without an exception in this output, and "
            f"{ranks_phrase(survivors)} lost the connection to it",
            why="The rank that reports a closed connection is itself healthy. The launcher names the rank that ended, "
            "which printed no traceback: sys.exit, os._exit, or a handler that hides the exception.",
            fix=f"read the last output of {ended.who}: torchrun --log-dir logs --tee 3 ...\n"
            "look for sys.exit and os._exit in the script, and for an except that ends the program",
            **details,
        )

    def _lost_worker(self, *errors: Line | Raised) -> Finding:
        rank = next((error.rank for error in errors if error.rank is not None), None)
        return self.fail(
            f"a DataLoader worker of {'a rank' if rank is None else f'rank {rank}'} ended without an error message",
            why="The lost connection is the one to a worker process of the DataLoader. A worker that ends without an "
            "exception was killed, mostly because memory ran out, or crashed in native code.",
            fix="dmesg -T | grep -i 'killed process'     # then use fewer workers\n"
            "DataLoader(..., num_workers=0)     # shows the exception of the worker",
            confidence=Confidence.LIKELY,
            **log_fields(*errors, role=Role.MESSENGER),
        )


def _ended_without_exception(log: Log) -> Ended | None:
    """The rank that ended by itself, with a status that means failure and without an exception."""
    raising = {raised.rank for raised in log.raised}
    ends = (end for end in log.ended if end.code > 0 and end.rank is not None and end.pid not in log.stopped)
    return next((end for end in ends if end.rank not in raising), None)


def _errors_of_survivors(log: Log) -> list[Line | Raised]:
    raised = [it for it in log.fatal if says(it.text, Says.PEER_GONE) and not is_of_another_service(it)]
    return list(raised or (line for line in log.find(pattern(Says.PEER_GONE)) if not log.went_on_after(line)))


def _is_of_loader(raised: Raised) -> bool:
    return any("torch/utils/data/" in frame.file for frame in raised.frames)

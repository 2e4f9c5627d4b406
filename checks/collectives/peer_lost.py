import re

from ddpdoctor.blame.frames import Frame
from ddpdoctor.check import Check
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Ended, Line, Log, Raised, log_fields
from ddpdoctor.logs.secondary_errors import PEER_IS_GONE, is_of_another_service
from ddpdoctor.logs.stall import find_stall
from ddpdoctor.model import Confidence, Family, Finding, Judgement, Role, Source
from ddpdoctor.text import ranks_phrase

_NAMED = re.compile(r"(?:from|check) rank (\d+)\b|to rank (\d+)\b.{0,40}clos")
_ADDRESS = re.compile(r"(?:peer|remote=?|to) \[?([\w.:-]{1,80}?)[\]<]")
_WORKER = r"DataLoader worker .{0,200}exited unexpectedly"
_MOST = 4


class PeerLost(Check):
    """A rank went away, and only the survivors speak.

    What it finds:
        "Connection closed by peer", ncclRemoteError, "Socket recv failed" and their kin, in an output that does not
        show why the peer went away: which ranks said it, and which rank they name.

    Why it matters:
        These lines come from healthy ranks. The rank to look at is one that does not complain, and its own output,
        its exit status, or its node's kernel log has the reason.

    Example:
        Rank 3 is killed on another node; ranks 0-2 report "Connection closed by peer".

    Fix:
        Look at the rank that is silent: its own output (torchrun --log-dir logs --tee 3), the exit codes in every
        launcher's summary, and dmesg on its node.
    """

    code = "DD311"
    name = "peer-lost"
    family = Family.COLLECTIVES
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
        worker = log.search(_WORKER)
        if worker:
            return [self._worker(*worker.sources)]
        told = _survivors(log)
        stall = find_stall(log)
        if not told or not log.failed or (stall and stall.missing):  # who names the missing rank knows more
            return NOT_IN_OUTPUT
        texts = [survivor.text for survivor in told]
        named = sorted(
            {int(rank) for text in texts for found in _NAMED.findall(text) for rank in found if rank}
        )
        address = next((found[1] for text in texts if (found := _ADDRESS.search(text))), "")
        survivors = {survivor.rank for survivor in told if survivor.rank is not None} - set(named)
        workers = [one for one in told if isinstance(one, Raised) and any(map(_in_loader, one.frames))]
        if workers:
            return [self._worker(workers[0])]
        silent = _ended_silently(log) if survivors and not named else None
        if silent:
            return [self._ended(silent, survivors, told)]
        lost = ranks_phrase(named) if named else f"the peer at {address}" if address else "a peer"
        return [
            self.fail(
                f"{lost} went away; the output shows {ranks_phrase(survivors) if survivors else 'survivors'} only",
                why="Who reports a closed connection is healthy. Why the other end went away stands in its own "
                "output, "
                "which is not here.",
                fix="torchrun --log-dir logs --tee 3 ...     # keeps every rank's output, also what it said last\n"
                f"look at {lost}: exit code in its launcher's summary, dmesg -T | grep -i -e killed -e xid on "
                "its node",
                confidence=Confidence.CERTAIN,
                **log_fields(*told[:_MOST], role=Role.MESSENGER, ranks=named),
            )
        ]

    def _ended(self, first: Ended, survivors: set[int], told: list[Line | Raised]) -> Finding:
        ranks = () if first.rank is None else (first.rank,)
        said = log_fields(first.line, *told[: _MOST - 1], role=Role.MESSENGER, ranks=ranks)
        return self.fail(
            f"rank {first.rank} ended with exit status {first.code} without an exception in this output, and "
            f"{ranks_phrase(survivors)} lost the connection to it",
            why="Who reports a closed connection is healthy. The launcher names the rank that ended, of which no "
            "traceback is here: sys.exit, os._exit, or a handler that keeps quiet.",
            fix=f"read what rank {first.rank} wrote last: torchrun --log-dir logs --tee 3 ...\n"
            "look for sys.exit and os._exit in the script, and for an except that ends the program",
            confidence=Confidence.CERTAIN,
            **{**said, "where": None},  # the traceback is a survivor's
        )

    def _worker(self, *told: Line | Raised) -> Finding:
        rank = next((one.rank for one in told if one.rank is not None), None)
        who = "a rank" if rank is None else f"rank {rank}"
        return self.fail(
            f"a DataLoader worker of {who} went away without a word",
            why="The connection that was lost is the one to a worker process of the DataLoader. A worker that dies "
            "without an exception was killed, mostly for want of memory, or crashed in native code.",
            fix="dmesg -T | grep -i 'killed process'; fewer workers\nDataLoader(..., num_workers=0) shows what "
            "it raises",
            confidence=Confidence.LIKELY,
            **log_fields(*told, role=Role.MESSENGER),
        )


def _ended_silently(log: Log) -> Ended | None:
    """The rank that ended by itself, with a status that tells of a failure and without an exception."""
    speak = {one.rank for one in log.raised}
    return next(
        (
            one
            for one in log.ended
            if one.code > 0 and one.rank is not None and one.rank not in speak and one.pid not in log.stopped
        ),
        None,
    )


def _survivors(log: Log) -> list[Line | Raised]:
    raised = [
        one for one in log.fatal if re.search(PEER_IS_GONE, one.text) and not is_of_another_service(one)
    ]
    return list(raised or (line for line in log.find(PEER_IS_GONE) if not log.went_on_after(line)))


def _in_loader(frame: Frame) -> bool:
    return "torch/utils/data/" in frame.file

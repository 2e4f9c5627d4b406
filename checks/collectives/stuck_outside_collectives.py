from ddpdoctor.blame.causes import BlockedOutside, Polls
from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.blame.place import PlaceKind
from ddpdoctor.blame.wording import all_do, at, others_wait, verb, who
from ddpdoctor.check import Finding, Judgement, Passed, reports
from ddpdoctor.text import quote
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import HangCheck

_FIX = {
    PlaceKind.LOADER: "see what the worker does at this line; DataLoader(..., timeout=60) raises where no batch "
    "arrives\nDataLoader(..., num_workers=0) runs the same code in the rank's process, where a traceback shows it",
    PlaceKind.LOCK: "see which thread or process holds it, and whether that one waits for this rank\n"
    "acquire(timeout=60) and get(timeout=60) return or raise after a minute",
    PlaceKind.CHILD: "subprocess.run(..., timeout=60) raises where the process does not end",
    PlaceKind.READ: "give the call a timeout, as socket.settimeout(60) does, and see which process should write",
    PlaceKind.OPEN: "a named pipe opens once another process opens its other end, so see which one should: ls -l FILE\n"
    "a file opens once its file system answers: df FOLDER hangs, too, where a network file system does not",
    PlaceKind.STORE: "see which rank should set that key, under exactly that name; with a timeout, wait raises:\n"
    "store.wait([key], timedelta(seconds=60))",
    PlaceKind.INPUT: "remove the question from the script: the ranks of a job have no terminal",
}
_FIX_KEPT = (
    "release it before waiting for other ranks, and on every way out: try: ... finally: ...\n"
    "or decide the order by a barrier, which raises at its timeout:\nif rank == 0: "
    "prepare()\ndist.barrier()"
)
_FIX_NOT_MADE = (
    "see which rank should make it, and whether it uses exactly that name\nin place of the "
    "loop: dist.barrier(), or store.wait([key], timedelta(seconds=60)), which raise at "
    "their timeout"
)
_FIX_STOPPED = (
    "kill -CONT PID     # continues it; a debugger, a shell's Ctrl-Z or a job manager sends SIGSTOP"
)
_FIX_OTHER = "see what it does at this line, and call the same collectives in the same order on every rank"


class StuckOutsideCollectives(HangCheck):
    """A rank is blocked in something other than a collective.

    What it finds:
        In a job that hangs, a rank that waits for a DataLoader worker, a lock, a queue, a pipe, a socket, a child
        process or its standard input, that a signal has stopped, or that looks again and again whether something is
        there (a lock file, a port, a flag), while the others wait for it in a collective: what it waits for, on
        which line, and the line of the DataLoader worker, or the rank that has what it looks for.

    Why it matters:
        Nothing in the job ends that wait. The other ranks report a timeout 10 or 30 minutes later, with errors that
        name an unrelated collective.

    Example:
        class Images(Dataset):
            def __getitem__(self, index):
                with self.lock:          # forked while another thread held it
                    return self.cache[index]

    Fix:
        Give calls that can block a timeout, so that they raise on the rank where it happens:
            DataLoader(dataset, num_workers=4, timeout=60)
            queue.get(timeout=60)
        Create locks, files and connections inside the worker (worker_init_fn), not before the fork.
    """

    code = "DD307"
    title = "no rank is blocked outside collectives"
    explained_by = ("DD005", "DD315")

    @reports(BlockedOutside)
    def _blocked(self, cause: BlockedOutside) -> Finding:
        ranks, waiting = cause.culprits, cause.waiting
        kind = cause.state.place.kind if cause.state.place else PlaceKind.ELSEWHERE
        worker = cause.state.stuck_worker
        stopped = cause.state.stopped or (worker is not None and worker.doing is Doing.STOPPED)
        why = "No rank is in a collective: all wait for something that nothing in the job provides."
        if waiting:
            why = (
                f"{who(waiting).capitalize()} {verb(waiting, 'is', 'are')} in a collective, which ends when "
                f"{who(ranks)} {verb(ranks, 'joins', 'join')} it. Nothing in the job provides what "
                f"{verb(ranks, 'it waits', 'they wait')} for."
            )
        return self.fail(
            all_do(ranks, cause.state) + (f", while {others_wait(cause)}" if waiting else ""),
            why=why,
            fix=_FIX_STOPPED if stopped else _FIX.get(kind, _FIX_OTHER),
        )

    @reports(Polls)
    def _polls(self, cause: Polls) -> Finding:
        ranks, waiting = cause.culprits, cause.waiting
        waits = f"{verb(ranks, 'waits', 'wait')} for {cause.look} to become {str(cause.until).lower()}"
        if cause.until is None:
            waits = f"{verb(ranks, 'tries', 'try')} {cause.look} again and again"
        return self.fail(
            f"{who(ranks)} {waits}" + (f", while {others_wait(cause)}" if waiting else ""),
            why=f"{who(ranks).capitalize()} {verb(ranks, 'does', 'do')} nothing else: a longer timeout changes nothing."
            f"{_giver(cause)}",
            fix=_FIX_KEPT if cause.until is not True else _FIX_NOT_MADE,
        )

    def examine_ended(self, trace: Trace) -> Judgement:
        trace.require_end()
        return Passed(f"no rank was blocked for long in {trace.seconds:.1f} s")


def _giver(cause: Polls) -> str:
    """Who made what is looked for, or did not."""
    if not cause.path:
        return ""
    path = quote(cause.path)
    if cause.made_by is None:
        left = "it may be left from an earlier run" if cause.until is not True else "nobody could see it"
        return f" No rank of this run made {path}: {left}."
    if cause.until is True:
        then = "and it was removed" if cause.removed else "where this rank does not see it"
    else:
        then = "and it was removed too late" if cause.removed else "and has not removed it"
    return f" Rank {cause.made_by} made {path}{at(cause.made_at)}, {then}."

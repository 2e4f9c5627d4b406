from ddpdoctor.blame.causes import BlockedOutside
from ddpdoctor.blame.place import PlaceKind
from ddpdoctor.blame.wording import all_do, cause_fields, others_wait, verb, who
from ddpdoctor.check import reports
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Family, Finding, Judgement, Passed
from ddpdoctor.trace import Trace
from ddpdoctor.trace.standstill_check import StandstillCheck

_FIX = {
    PlaceKind.LOADER: "see what the worker does at the line named here; DataLoader(..., timeout=60) raises where a "
    "batch does not come\nDataLoader(..., num_workers=0) runs the same code in the rank itself, where a "
    "traceback shows it",
    PlaceKind.LOCK: "see who holds what it waits for: a thread, or a process, that waits for this rank in turn\n"
    "acquire(timeout=60), get(timeout=60) raise where nobody comes",
    PlaceKind.CHILD: "subprocess.run(..., timeout=60) raises where the process does not end",
    PlaceKind.READ: "give the call a time limit, as socket.settimeout(60) does, and see who should write",
    PlaceKind.STORE: "see which rank should set that key, under that very name; a store with a timeout raises where "
    "none does:\nstore.wait([key], timedelta(seconds=60))",
    PlaceKind.INPUT: "take the question out of the script: the ranks of a job have no terminal",
}
_STOPPED = (
    "kill -CONT PID goes on with it; look who sent SIGSTOP: a debugger, a shell's Ctrl-Z, a job manager"
)
_LOOK = (
    "see what it does at the line named here, and bring every rank to the same collectives in the same order"
)


class StuckOutsideCollectives(StandstillCheck):
    """A rank is blocked in something that is no collective.

    What it finds:
        In a job that stands still, a rank that waits for a DataLoader worker, a lock, a queue, a pipe, a socket, a
        child process or its standard input, or that a signal has stopped, while the others wait for it in a
        collective: what it waits for, on which line, and, of a worker, the line at which the worker is.

    Why it matters:
        Nothing in the job brings what it waits for. The other ranks report a timeout 10 or 30 minutes later, and
        their errors name a collective that has nothing to do with it.

    Example:
        class Images(Dataset):
            def __getitem__(self, index):
                with self.lock:          # forked while another thread held it
                    return self.cache[index]

    Fix:
        Give what may block a time limit, so that it raises on the rank where it happens:
            DataLoader(dataset, num_workers=4, timeout=60)
            queue.get(timeout=60)
        Make locks, files and connections inside the worker (worker_init_fn), not before the fork.
    """

    code = "DD307"
    name = "stuck-outside-collectives"
    family = Family.COLLECTIVES
    title = "no rank is blocked outside collectives"
    explained_by = ("DD005",)

    @reports(BlockedOutside)
    def _blocked(self, cause: BlockedOutside) -> Finding:
        ranks, waiting = cause.culprits, cause.waiting
        place = cause.state.place
        it_waits = verb(ranks, "it waits", "they wait")
        return self.fail(
            all_do(ranks, cause.state) + (f", while {others_wait(cause)}" if waiting else ""),
            why=f"{who(waiting).capitalize()} {verb(waiting, 'is', 'are')} in a collective, which ends when "
            f"{who(ranks)} {verb(ranks, 'joins', 'join')} it. What {it_waits} for is no rank, and nothing in the job "
            "brings it."
            if waiting
            else "No rank is in a collective: all wait for something else, and nothing in the job brings it.",
            fix=_STOPPED
            if cause.state.stopped
            else _FIX.get(place.kind if place else PlaceKind.ELSEWHERE, _LOOK),
            **cause_fields(cause),
        )

    def examine_ended(self, trace: Trace) -> Judgement:
        if trace.broken:
            raise NotMeasured(trace.broken)
        return Passed(f"no rank was blocked for long in {trace.seconds:.1f} s")

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Family, Judgement, Passed
from ddpdoctor.trace import Trace
from ddpdoctor.trace.verdict import claim


class StuckOutsideCollectives(Check):
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

    def examine_run(self, trace: Trace) -> Judgement:
        hung = claim(self, trace)
        if hung:
            return hung
        if trace.broken:
            raise NotMeasured(trace.broken)
        return Passed(f"no rank was blocked for long in {trace.seconds:.1f} s")

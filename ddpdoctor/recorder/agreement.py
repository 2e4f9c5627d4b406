"""What the ranks of one host agree on before a run is cut short, by files of the run's folder and no collective.

A rank that ends a loop, or leaves, takes no part in any later collective. It may do so only where every other rank
does the same at the same point of the program: where that is not certain, the script runs on.
"""

import itertools
import os
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .iterated import OpenPass
from .rehearse.simulated_hosts import HOST, ImaginedJob
from .session import Session
from .training import TrainingPart, sequence_number

_PASS_SECONDS = 1.0
"""For other ranks to show that they are in the same pass; they are a batch behind at most."""
_MEETING_SECONDS = 3.0
"""For other ranks to come to the end of the run; less than a rank may wait in a collective without a hang."""
_LOOK_SECONDS = 0.01
_SLOWER = 4
"""How many times as long as on a machine of its own a wait for other ranks may take."""
_CUT, _RUN_ON = "cut", "run on"
Clock = tuple[Any, ...]


class Agreement(TrainingPart):
    """Of this process with the other ranks of its host."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._passes: Counter[str] = Counter()
        """Passes in which collectives were issued, by the loop's line."""
        self._shown: dict[str, str] = {}
        """What other ranks were last shown of each of them."""
        self._alone: set[str] = set()
        """Lines of loops that not every rank was in."""
        self._job: int | None = None
        """How many processes had this one's rank before it, in the same attempt: jobs that ran before."""

    def ranks(self) -> Sequence[int] | None:
        """All ranks of the job that are real, where they are on this host; None where that is not known."""
        if (job := ImaginedJob.of_environment(os.environ)) is not None:
            return job.real
        dist, environ = self.torch.distributed, os.environ
        local, everywhere = environ.get("LOCAL_WORLD_SIZE"), environ.get("WORLD_SIZE")
        if HOST not in environ and local not in (None, everywhere):
            return None
        initialized = dist.is_available() and dist.is_initialized()
        size = everywhere or (dist.get_world_size() if initialized else None)
        return None if size is None else range(int(size))

    def rank(self) -> int | None:
        """This process's, also before there is a process group."""
        rank = os.environ.get("RANK", self.session.rank)
        return None if rank is None else int(rank)

    def clock(self) -> Clock:
        """Something that changes with every collective of this process."""
        dist = self.torch.distributed
        if not (dist.is_available() and dist.is_initialized()):
            return ()
        groups = {id(wrapper.group): wrapper.group for wrapper, _ in self.training.living()}
        numbers = [sequence_number(group) for group in (dist.group.WORLD, *groups.values())]
        uncounted = self.session.backwards if None in numbers else 0
        return (self.training.collectives, uncounted, *numbers)

    def watch(self, now: OpenPass) -> None:
        """Note that a pass issues collectives, as soon as it does, for the other ranks to see.

        Also whether it goes backward and updates weights, on which it depends when a rank has seen enough: a rank may
        leave the updates to another that sends it the weights.
        """
        if now.shared is None and now.number >= 0 and self.clock() != now.clock:
            now.shared = self._numbered(_name(now))
        if now.shared is not None:
            trains = self.session.backwards > now.backwards, self.session.steps > now.steps
            state = f"{now.loader.batch_size} {trains}"
            if state != self._shown.get(now.shared):
                self._shown[now.shared] = state
                self._write(self._of_pass(now.shared, self.rank()), state)

    def is_over(self, now: OpenPass, *, here: bool) -> bool:
        """Whether a pass has been long enough after this batch, as the rank that comes first has it. Also of a pass
        without collectives: what every rank evaluates on its own may end in one."""
        if self.ranks() is None:  # no file tells the other hosts, so it goes by the number of batches
            return here or now.shared is not None
        if now.shared is None and not now.length.own:
            now.length.own = self._numbered(f"own-{_name(now)}")
        path = self._of_pass(now.shared or now.length.own, f"over-{now.taken}")
        return self._decide(path, _CUT if here else _RUN_ON) == _CUT

    def _numbered(self, loop: str) -> str:
        self._passes[loop] += 1
        return f"{loop}-{self._passes[loop] - 1}"

    def cuts(self, now: OpenPass, *, enough: bool) -> bool:
        """Whether every rank ends this pass after this batch, which this one has had enough of or not. The same answer
        on all of them: that of the rank that comes first, as one that left an update out counts others."""
        ranks = self.ranks()
        if now.shared is None or ranks is None:
            return enough  # nobody takes part in what it does; on several hosts no file tells
        if enough and now.agreed is None:
            seconds = 0.0 if _name(now) in self._alone else _PASS_SECONDS
            states = self._wait_for([self._of_pass(now.shared, rank) for rank in ranks], seconds)
            answer = _CUT if None not in states and len(set(states)) == 1 else _RUN_ON
            now.agreed = self._decide(self._of_pass(now.shared, "all"), answer) == _CUT
            if not now.agreed:
                self._alone.add(_name(now))
        if now.agreed is False:
            return False
        here = _CUT if enough else _RUN_ON
        return self._decide(self._of_pass(now.shared, f"all-{now.taken}"), here) == _CUT

    def meet(self, name: str) -> bool:
        """Wait until every rank has come to this meeting, between two training steps; False where one does not come. A
        rank waits in no collective while it is here, so all may leave once all have come."""
        ranks, rank = self.ranks(), self.rank()
        if ranks is None or rank is None:
            return False
        decision = self._path(f"end-{name}")
        self._write(f"{decision}.{rank}", "here")
        states = self._wait_for([f"{decision}.{other}" for other in ranks], _MEETING_SECONDS, decision)
        return self._decide(decision, _RUN_ON if None in states else _CUT) == _CUT

    def all_ready(self) -> bool:
        """Whether every rank has once called this."""
        ranks, rank = self.ranks(), self.rank()
        if ranks is None or rank is None:
            return False
        self._write(self._path(f"ready.{rank}"), "")
        return all(os.path.exists(self._path(f"ready.{other}")) for other in ranks)

    def announced(self, step: int | None) -> int | None:
        """The step after which the run is to end, as rank 0 announced it; rank 0 may announce one."""
        if self.ranks() is None:
            return None
        path = self._path("last-step")
        if step is not None and not self.rank():
            self._decide(path, str(step))
        text = _read(path)
        return int(text) if text else None

    def _of_pass(self, key: str, rank: int | str | None) -> str:
        return self._path(f"pass-{key}.{rank}")

    def _path(self, name: str) -> str:
        again, rank = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), self.rank()
        attempt = os.path.join(self.session.folder, f"agreed-{again}")
        if self._job is None and rank is not None:
            self._job = next(job for job in itertools.count() if _made(f"{attempt}-job-{job}.{rank}"))
        return f"{attempt}-{self._job}-{name}"

    @staticmethod
    def _wait_for(paths: list[str], seconds: float, until: str = "") -> list[str | None]:
        """What the files hold, once all of them are there, another one is, or time is up.

        Time is counted in looks: where the machine is busy or stands still, it does so for the other ranks, too. By
        the clock it is some times as long at most.
        """
        texts, latest = [_read(path) for path in paths], time.monotonic() + _SLOWER * seconds
        for _ in range(int(seconds / _LOOK_SECONDS)):
            if None not in texts or (until and os.path.exists(until)) or time.monotonic() > latest:
                break
            time.sleep(_LOOK_SECONDS)
            texts = [_read(path) for path in paths]
        return texts

    def _decide(self, path: str, answer: str) -> str:
        """Give an answer for all ranks, and get the one that was given first."""
        whole = f"{path}.{os.getpid()}"
        self._write(whole, answer)
        with suppress(FileExistsError):
            os.link(whole, path)
        os.unlink(whole)
        return _read(path) or _RUN_ON

    @staticmethod
    def _write(path: str, text: str) -> None:
        whole = f"{path}.part"
        with open(whole, "w") as file:
            file.write(text)
        os.replace(whole, path)


def _made(path: str) -> bool:
    """Whether it was this process that made a file."""
    with suppress(FileExistsError), open(path, "x"):
        return True
    return False


def _name(now: OpenPass) -> str:
    """Of its loop."""
    at = now.at
    return "none" if at is None else f"{zlib.crc32(at.file.encode())}-{at.line}"


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None

"""How processes ended and what they waited for, as launchers, shells, schedulers and watchdogs write it."""

import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ddpdoctor import failures
from ddpdoctor.logs.log import Ended, Line, Progress, Wait
from ddpdoctor.recorder.launchers import LAUNCHERS, NAMES_OF_SIGNALS, any_of, fields

SIGNALS = {words: signal.Signals[name] for words, name in NAMES_OF_SIGNALS.items()}
"""By the words with which shells and schedulers name them."""
_WINDOWS_ERROR = 0xC000_0000
_WINDOWS = {0xC000_0005: signal.SIGSEGV, 0xC000_001D: signal.SIGILL, 0xC000_013A: signal.SIGINT}
"""Exit statuses of Windows, by the signals that say the same elsewhere; of the others each ends a process at once."""
_WHO = re.compile(any_of(launcher.who for launcher in LAUNCHERS))
_HOW = re.compile(any_of(launcher.how for launcher in LAUNCHERS))
_ENDED = [(launcher.name, re.compile(ended)) for launcher in LAUNCHERS for ended in launcher.ended]
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout"
    r"(?:: WorkNCCL\((?P<work>.{0,400}?)(?:\) ran for (?P<ms>\d+) milli|$))?"
)
_STATUS = re.compile(
    r"(?:work sequence id: (?P<seq>\d+) PG status"
    r"|(?:Timeout at NCCL work|detected by watchdog at work): (?P<old>\d+)).{0,20}?"
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: -?\d"
)
_DUMPED = re.compile(
    r"Received a dump signal due to .{0,400}?Last enqueued NCCL work: (?P<enqueued>-?\d+), last completed"
)
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d+) seconds")
_LABELLED = re.compile(r"\[[EWIF]\d{3,4} ")
"""As torch writes since it labels the lines of each rank."""
_RANK = re.compile(r"\bRank (\d+)\]")
_GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID |ID )?(?P<name>\w+)")
"""The group of all ranks has the name 0; an ID numbers the groups of one process."""
_FIELD = re.compile(r"(\w+)(?:\(ms\))?=(\w+)")
_COUNT = r"\d{1,15}(?:\.\d{1,3})?[kMGT]?"
_BAR = re.compile(
    rf"(?<![\d.])(?P<done>{_COUNT})(?:i?B)?"
    rf"(?:/(?P<total>{_COUNT})(?:i?B)?\s{{1,9}}\[(?P<elapsed>(?:\d+:)?\d{{1,3}}:\d\d)<[\d:?]"
    r"|\s(?!it\b)[a-z]{2,12}\s\[(?P<elapsed_1>(?:\d+:)?\d{1,3}:\d\d), )"
)
"""With a total, or of a named unit without one; what counts no more than iterations is mostly the training."""
_THOUSANDS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_STOPPED = re.compile(r"[Ss]ending process (\d+) closing signal|Killing subprocess (\d+)")
_SIZE = re.compile(r"\bnranks (\d+)|\b[Ww]orld[_ ]?[Ss]ize['\"]?\s?[:=]\s?(\d+)|MEMBER: \d+/(\d+)")

_READ = (_WHO, _HOW, _WATCHDOG, _STATUS, _DUMPED, _STUCK, _STOPPED, _SIZE, *(ended for _, ended in _ENDED))
WORDS = tuple(failures.words(*(pattern.pattern for pattern in _READ)))
"""Words of the lines that are read here."""


@dataclass
class Ends:
    """Fed with lines; keeps what they say of ends and waits."""

    ended: dict[object, Ended] = field(default_factory=dict)
    waits: dict[object, Wait] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    """The last collective that a rank had started when its own or another's timeout made it tell."""
    progress: dict[int | None, Progress] = field(default_factory=dict)
    world_size: int | None = None
    stopped: set[int] = field(default_factory=set)
    _who: dict[str, str] = field(default_factory=dict)
    """What a launcher's summary has told of the process whose end comes next."""

    def feed(self, line: Line) -> None:
        """Take one line."""
        self._take_summary(line)
        for ended in _ends(line):
            self._keep(ended)
        self._take_wait(line)
        if stopped := _STOPPED.search(line.text):
            self.stopped.add(int(next(filter(None, stopped.groups()))))
        self.feed_bar(line)
        if size := _SIZE.search(line.text):
            self.world_size = max(self.world_size or 0, int(next(filter(None, size.groups()))))

    def feed_bar(self, line: Line) -> None:
        """Take the progress bar in a line, where it has one and none came later."""
        known = self.progress.get(line.rank)
        bar = _BAR.search(line.text) if known is None or known.line.position <= line.position else None
        if bar:
            drawn = fields(bar)
            done, total = _amount(drawn["done"]), _amount(drawn.get("total", "0"))
            self.progress[line.rank] = Progress(line, done, total, _seconds(drawn["elapsed"]))

    def _take_summary(self, line: Line) -> None:
        """The summaries of launchers say which process it was, and how it ended, in lines of their own."""
        if who := _WHO.search(line.text):
            self._who |= fields(who)
        how = _HOW.search(line.text) if "rank" in self._who or "pid" in self._who else None
        if how is None:
            return
        self._keep(_ended(line, self._who | fields(how)))
        if "EXIT CODE" not in line.text:  # Hydra's may be a signal's number, which the next line tells
            self._who.clear()

    def _keep(self, ended: Ended) -> None:
        """One entry for each process: the launcher's line, then with the rank that its summary adds."""
        key = ended.pid or (ended.code, ended.rank, ended.host)
        known = self.ended.get(key)
        self.ended[key] = (
            ended
            if known is None
            else replace(
                known,
                code=min(ended.code, 0) or known.code,
                rank=known.rank if ended.rank is None else ended.rank,
                host=ended.host or known.host,
            )
        )

    def _take_wait(self, line: Line) -> None:
        match = _WATCHDOG.search(line.text)
        rank = _rank_of(line)
        if match:
            work = dict(_FIELD.findall(match["work"] or ""))
            sequence = int(work["SeqNum"]) if "SeqNum" in work else None
            elements = int(work["NumelIn"]) if "NumelIn" in work else None
            seconds = int(match["ms"]) / 1000 if match["ms"] else None  # the output may end in this line
            group = "smaller" if _is_of_smaller_group(line, rank) else ""
            wait = Wait(rank, work.get("OpType", ""), line, sequence, seconds, elements, group=group)
            self.waits.setdefault((rank, sequence), wait)
        if (dumped := _DUMPED.search(line.text)) and rank is not None:
            self.reached.setdefault(rank, int(dumped["enqueued"]))
        if stuck := _STUCK.search(line.text):
            known = Wait(rank, "a call of NCCL", line, seconds=float(stuck["seconds"]), collective=False)
            self.waits.setdefault((rank, "stuck"), known)
        if status := _STATUS.search(line.text):
            sequence = int(status["seq"] or status["old"])
            if rank is not None and not _is_of_smaller_group(line, rank):
                self.reached.setdefault(rank, int(status["enqueued"]))
            named, enqueued = _GROUP.search(line.text), int(status["enqueued"])
            group = named["name"] if named else ""
            for key, wait in self.waits.items():
                if wait.rank == rank and wait.sequence in (sequence, None):
                    self.waits[key] = replace(wait, sequence=sequence, enqueued=enqueued, group=group)


def _rank_of(line: Line) -> int | None:
    """The rank in the job; a watchdog names the one in its group, behind the other's label."""
    if line.rank is not None and _LABELLED.match(line.text):
        return line.rank
    match = _RANK.search(line.text)
    return int(match[1]) if match else line.rank


def _is_of_smaller_group(line: Line, rank: int | None) -> bool:
    """Whether the rank has another number in the group whose watchdog writes."""
    of_group = _RANK.search(line.text)
    return of_group is not None and rank is not None and int(of_group[1]) != rank


def _ends(line: Line) -> Iterator[Ended]:
    for launcher, pattern in _ENDED:
        if match := pattern.search(line.text):
            found = fields(match)
            if launcher == "shells" and line.rank is not None:
                found["rank"] = str(line.rank)
            for rank in _tasks(found["tasks"]) if "tasks" in found else [None]:
                yield _ended(line, found if rank is None else {**found, "rank": str(rank)})
            return


def _ended(line: Line, fields: Mapping[str, str]) -> Ended:
    rank, local, pid = (int(fields[name]) if name in fields else None for name in ("rank", "local", "pid"))
    return Ended(_code(fields), line, rank, local, pid, fields.get("host", ""))


def _code(fields: Mapping[str, str]) -> int:
    """The exit status as Python has it: shells and Slurm write 137 for signal 9."""
    if "name" in fields:
        name = fields["name"]
        return -int(SIGNALS[name] if name in SIGNALS else getattr(signal, name, 0))
    if fields.get("signal"):
        return -int(fields["signal"])
    return _status(int(fields.get("code", 1)))


def _status(code: int) -> int:
    """An exit status, negative for what is a signal: shells add 128 to it, and Windows has numbers of its own."""
    if code & _WINDOWS_ERROR == _WINDOWS_ERROR and code > 0:
        return -_WINDOWS.get(code, signal.SIGABRT)
    return 128 - code if 128 < code < 160 else code


def _tasks(text: str) -> list[int | None]:
    """``1-3,5`` as numbers; a job is rarely larger than what is looked at here."""
    numbers: list[int | None] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first:
            numbers += range(int(first), min(int(last or first), int(first) + 4096) + 1)
    return numbers or [None]


def _amount(text: str) -> int:
    return int(float(text.rstrip("kMGT")) * _THOUSANDS.get(text[-1], 1))


def _seconds(clock: str) -> float:
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return float(total)

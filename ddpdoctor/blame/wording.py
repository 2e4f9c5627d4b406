"""Sentences about ranks that hang, shared by the checks that report a hang."""

from collections.abc import Iterable

from ddpdoctor.blame.causes import Cause
from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.blame.place import Place, PlaceKind, place_of
from ddpdoctor.blame.rank_state import RankState
from ddpdoctor.model import Where
from ddpdoctor.text import ranks_phrase

_STOPPED = "is stopped, by SIGSTOP or a debugger"
_LEFT = {
    "returned": "reached the end of its script",
    "exit": "ended by sys.exit",
    "os._exit": "ended by os._exit",
}
_SELF = {
    PlaceKind.LOADER: "waits for the next batch of its DataLoader",
    PlaceKind.INPUT: "waits for input on its standard input",
    PlaceKind.CHILD: "waits for a process that it started",
    PlaceKind.SLEEP: "sleeps",
}
_SEVERAL = {
    "waits": "wait",
    "is": "are",
    "sleeps": "sleep",
    "works": "work",
    "reads or writes": "read or write",
}


_WORKS = {Doing.COMPUTES: "works", Doing.DISK: "reads or writes"}
_LONGEST_WHO = 60


def who(ranks: Iterable[int]) -> str:
    """``rank 2``, ``ranks 0-1, 3``; of very many how many, and the first of them."""
    known = set(ranks)
    phrase = ranks_phrase(known)
    if len(phrase) <= _LONGEST_WHO:
        return phrase
    return f"{len(known)} ranks ({phrase[len('ranks ') : _LONGEST_WHO].rpartition(', ')[0]}, ...)"


def consequences(ranks: Iterable[int]) -> str:
    """What a reader need not look at: the errors of these ranks; empty where there are none."""
    later = set(ranks)
    return f" The errors of {who(later)} afterwards are consequences." if later else ""


def verb(ranks: Iterable[int], singular: str, plural: str) -> str:
    """A verb, or a pronoun, in the number of its subject."""
    return singular if len(set(ranks)) == 1 else plural


def at(where: Where | None) -> str:
    """`` at train.py:12``; empty where there is none."""
    return f" at {where}" if where else ""


def place_phrase(place: Place | None) -> str:
    """``barrier at train.py:12``."""
    return f"{place.title}{at(place.where)}" if place else "a collective"


def wait_phrase(ranks: Iterable[int], place: Place | None, wait: str = "wait") -> str:
    """``ranks 0, 2 wait in barrier at train.py:12``."""
    known = list(ranks)
    adverb, _, word = wait.rpartition(" ")
    phrase = f"{adverb} {verb(known, f'{word}s', word)}".strip()
    return f"{who(known)} {phrase} in {place_phrase(place)}"


def others_wait(cause: Cause, wait: str = "wait") -> str:
    """The same of those that wait for the culprits."""
    return wait_phrase(cause.waiting, cause.waits_in, wait)


def for_seconds(seconds: float | None) -> str:
    """`` for 12 s``; empty where nobody had watched, or no line tells."""
    return f" for {seconds:.0f} s" if seconds and seconds >= 1 else ""


def all_do(ranks: tuple[int, ...], first: RankState) -> str:
    """``ranks 1-3 wait in Queue.get at train.py:12``, as the first of them does."""
    phrase = doing(first)
    if len(ranks) > 1:
        words = next((words for words in _SEVERAL if phrase.startswith(f"{words} ")), "")
        phrase = f"{_SEVERAL.get(words, '')}{phrase.removeprefix(words)}"
    return f"{who(ranks)} {phrase}"


def doing(state: RankState) -> str:
    """What a rank does, for a sentence whose subject it is: ``waits in Queue.get at train.py:12``."""
    if state.left:
        return _LEFT.get(state.left, "has ended")
    if state.stopped:
        return f"{_STOPPED}{at(state.where)}"
    if state.place is None:
        return _unseen(state)
    return f"{_verb(state, state.place)}{at(state.where)}{_worker(state)}"


def _unseen(state: RankState) -> str:
    if state.process is None:
        return state.last or "was not seen"
    return "has ended" if state.process.doing is Doing.GONE else "did not show its stack"


def _verb(state: RankState, place: Place) -> str:
    process = state.process
    if place.waits:
        return f"waits in {place.title}"
    if place.kind in _SELF:
        return _SELF[place.kind]
    if place.blocks:
        call = process.call if process and place.kind is PlaceKind.READ else ""
        return f"waits in {place.what}{f', in {call}' if call not in ('', place.what) else ''}"
    return _WORKS.get(process.doing, "is") if process else "is"


def _worker(state: RankState) -> str:
    """Where the DataLoader worker is for which the rank waits."""
    worker = state.stuck_worker
    place = place_of(worker) if worker else None
    if worker is not None and worker.doing is Doing.STOPPED:
        return f"; worker process {worker.pid} {_STOPPED}{at(place.where) if place else ''}"
    return f"; worker process {worker.pid} is{at(place.where)}" if worker and place else ""

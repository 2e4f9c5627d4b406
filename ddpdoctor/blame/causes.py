"""Why a job stands still: a closed set of causes, with what is known of each. Checks own them and word them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import dataclass_transform

from ddpdoctor.blame.hang_snapshot import ActiveException
from ddpdoctor.blame.place import Place
from ddpdoctor.blame.rank_state import RankState
from ddpdoctor.model import Confidence, Evidence, Where

Members: TypeAlias = "tuple[int, ...] | None"
"""Of a process group, as ranks of the job; None for all of them."""


@dataclass_transform(kw_only_default=True)
@dataclass(kw_only=True)
class Cause:
    """What all causes have. Each kind is a dataclass, too, which nobody changes: freezing doubles the time to import
    them."""

    culprits: tuple[int, ...] = ()
    """The ranks to look at; empty where it is not one of them."""
    waiting: tuple[int, ...] = ()
    """The ranks that wait for them."""
    waits_in: Place | None = None
    """In what those wait, or most of them."""
    where: Where | None = None
    """The line to look at."""
    states: tuple[Evidence, ...] = ()
    """What each rank does, and what was seen of it."""
    confidence: Confidence = Confidence.CERTAIN

    def __init_subclass__(cls) -> None:
        """Make it a dataclass."""
        dataclass(kw_only=True)(cls)


@dataclass(frozen=True)
class DivergentCall:
    """What some ranks called, at a position where others called something else."""

    ranks: tuple[int, ...]
    text: str
    """``all_reduce of float32 [4]``."""


class BlockedOutside(Cause):
    """Ranks wait for something that is no rank: a lock, a pipe, a DataLoader worker, a person."""

    state: RankState
    """Of the first of them."""


class Polls(Cause):
    """Ranks look again and again for something that does not come."""

    look: str
    """The expression by which they look."""
    until: bool | None
    """What it is to become; None where it raises, and is to cease to."""
    path: str = ""
    """At which they look; empty where it is none, or is not known."""
    made_by: int | None = None
    """The rank that made it last."""
    made_at: Where | None = None
    removed: bool = False
    """Whether a rank removed it since."""


class WorksAlone(Cause):
    """Ranks compute, read, write or sleep while the others wait for them."""

    state: RankState
    seconds: float
    """Since the last sign of progress; 0 where nobody had watched."""
    timeout: float | None
    """Of the process group, in seconds."""
    out_of_time: bool
    """Whether it was looked at because the time for the examination was over."""


class IsElsewhere(Cause):
    """Ranks are on another line than those that wait for them, and what they do there is not known."""

    state: RankState


class NeverCame(Cause):
    """Ranks did not call what the others wait in, and no more than their calls is known."""

    what: str
    """``all_reduce 10 of the default group``."""
    here: tuple[int, ...]
    """The ranks that are seen to wait in just that."""
    end: str = ""
    """Of a message: ``send`` or ``recv``, the end at which they wait."""


class LeftNoDump(NeverCame):
    """None of the ranks that did not come left a dump of its flight recorder either."""


class Unseen(Cause):
    """Ranks of which there is neither a stack nor a record, while the others wait."""


class NobodyLate(Cause):
    """Every rank came to one collective, and it does not end."""

    what: str


class Mismatch(Cause):
    """Ranks called different collectives, or with different tensors, at one position."""

    first: DivergentCall
    second: DivergentCall
    position: str = ""
    """``position 10 of the default group``; empty where it is not known."""
    of_roots: bool = False
    """Whether the ranks called the same, and named different roots."""


class CalledAlone(Cause):
    """Ranks called a collective that the others did not call."""

    call: str
    others: DivergentCall
    """What those did instead."""
    position: str = ""
    of_forward: bool = False
    """Whether it is the forward of a wrapped model, which broadcasts buffers."""
    led_by: Where | None = None
    """The call under a condition on the rank that led to it, where it is under none itself."""


class LeftCallOut(Cause):
    """Ranks left a collective out that the others called, and went on with what these called next."""

    call: str
    others: tuple[int, ...]
    position: str


class NoPartner(Cause):
    """A rank waits at one end of a message, and its peer never comes to the other."""

    what: str
    at: Where | None
    rank: int
    peer: RankState


class MessageCircle(Cause):
    """Ranks wait for messages of each other in a circle."""

    what: str
    peers: Mapping[int, int]
    """By the rank that waits for it."""


class GroupCircle(Cause):
    """Ranks wait for each other in the collectives of groups that share ranks."""

    groups: Mapping[int, tuple[tuple[int, ...], str]]
    """The members and the name, by the rank that waits in it."""


class CallCircle(Cause):
    """Ranks came first to what another of them comes to later, by the order of their calls."""

    first: str
    """In what the first culprit waits."""
    other: int
    """The rank that it waits for."""
    its_place: str


class DifferentLines(Cause):
    """Ranks wait for each other in collectives on different lines, and no record tells how they came there."""

    places: tuple[tuple[tuple[int, ...], Place], ...]


class GroupsOutOfOrder(Cause):
    """Ranks made different groups at one position."""

    members: Mapping[int, Members]


class GroupMadeAlone(Cause):
    """Ranks called new_group, and the others did not."""

    made: bool
    """Whether it is known for which members."""
    members: Members = None


class GroupsDisagree(Cause):
    """Ranks know different members of one group."""

    group: str
    known: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """The members, and the ranks that know these; most ranks first."""


class GradientsMissing(Cause):
    """Ranks came out of backward without a gradient for some parameters, so that nothing was averaged there."""


class OutOfBatches(Cause):
    """Ranks have run out of batches in a pass of which others have more."""

    drawn: int


class LeftLoop(Cause):
    """Ranks left a loop that others go on with."""

    steps: int
    """Which they took."""
    had_batches: bool = True
    """Whether a DataLoader had more for them; without one it is not known."""


class LeftStepsOut(Cause):
    """Ranks drew as many batches as the others and trained on fewer."""

    fewer: int


class LeftBackwardOut(Cause):
    """Ranks went forward as often as the others, and left a backward out."""

    step: int | None


class EndedEarly(Cause):
    """Ranks ended their script with status 0 while others wait for them."""

    state: RankState


class FailedAndWaits(Cause):
    """Ranks raised, and wait for the others before their exception can end them."""

    handled: ActiveException
    own_wait: Place
    """In what they wait."""


class GaveUp(Cause):
    """Ranks gave a collective up after its timeout, as a job's output tells; nothing else is known of it."""

    what: str
    """``ALLREDUCE number 12``, or what is known of it."""
    seconds: float | None
    """The timeout, where the output tells it."""
    first: bool = False
    """Whether it was the first collective of the group."""


class LateInOutput(GaveUp):
    """Ranks of the job are not among those that gave up, or gave up in an earlier collective."""

    instead: str = ""
    """That one."""


class AloneInOutput(GaveUp):
    """Few ranks gave up, and the others never came to their collective."""


class BusyInOutput(GaveUp):
    """The others waited in a barrier for ranks that ran until the launcher ended them."""


class WorkInOutput(GaveUp):
    """A progress bar had run for about as long, and was not done."""

    percent: int | None
    """Of the work that was done; None where the bar does not tell how much there is."""
    took: float
    """Seconds."""

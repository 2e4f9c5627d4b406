"""The order in which the possible causes of a standstill are looked at, whatever is known of the job.

Who is stuck is usually the victim. The blame follows the waits: to ranks that wait for no rank, which are blocked, at
work, gone or out of sight; or, where all wait for each other, to the first position at which they parted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpdoctor.blame.causes import Cause
from ddpdoctor.blame.graph import WaitGraph


class Scene:
    """A job that stands still, as one kind of facts shows it. Each question has an answer, or None where they do not
    tell."""

    @property
    def graph(self) -> WaitGraph:
        """Who waits for whom, of the ranks that can be seen."""
        raise NotImplementedError

    @property
    def judged_already(self) -> bool:
        """Whether a rank failed, or was ended by us: that tells what happened, and the others are its victims."""
        return False

    def groups_differ(self) -> Cause | None:
        """Whether ranks mean different groups by one name or position."""
        return None

    def calls_differ(self) -> Cause | None:
        """Whether calls met each other and differ, before any rank was waited for."""
        return None

    def nobody_waits(self) -> Cause | None:
        """Where no rank waits for another."""
        return None

    def without_wait(self, ranks: Sequence[int]) -> Cause:
        """By ranks that others wait for, and that wait for no rank."""
        raise NotImplementedError

    def failed(self) -> Cause | None:
        """Whether ranks have raised, and wait before their exception can end them."""
        return None

    def knot(self, ranks: Sequence[int]) -> Cause | None:
        """By all ranks that wait for each other."""
        return None

    def nobody_late(self) -> Cause:
        """Where nobody is missing, as far as can be seen."""
        raise NotImplementedError


def cause_of(scene: Scene) -> Cause | None:
    """The one cause of a standstill; None where there is none, or where no rank waits in vain."""
    if scene.judged_already:
        return None
    apart = scene.groups_differ() or scene.calls_differ()
    if apart:
        return apart
    graph = scene.graph
    if not graph.stands:
        return scene.nobody_waits()
    sinks = graph.sinks()
    without_wait = [rank for rank in sinks if rank not in graph.stands]
    if without_wait:
        return scene.without_wait(without_wait)
    knot = [] if sinks else graph.knot()
    return scene.failed() or (scene.knot(knot) if knot else None) or scene.nobody_late()

"""DD011 on recorded runs: a default process group initialized again in the store of the first one."""

from typing import Any

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.model import Level, Passed, Source
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask
from tests.support.recordings import recorded, replace, where

STORE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def joining(
    line: int, action: str = "init", size: int = 2, environ: dict[str, str] = STORE, **given: Any
) -> GroupEvent:
    return GroupEvent(action, 0.0, where(line), "gloo", 0, size, arguments=given, environ=environ)


def destroyed() -> GroupEvent:
    return GroupEvent("destroy", 0.0, where(30))


def run(*events: GroupEvent, broke: str | None = None) -> Trace:
    """Two ranks with these events of their default groups, which rank 1 ends with an exception."""

    def change(rank: int, one: Recording) -> Recording:
        return replace(one, groups=events)

    trace = recorded(change=change)
    if broke is None:
        return trace
    failure = Failure("RuntimeError", broke, "", 1.0)
    first, last = trace.ranks
    return replace(trace, ranks=(first, replace(last, finished=False, failure=failure, exit_code=1)))


@pytest.mark.parametrize(
    "message",
    [
        "Connection closed by peer [127.0.0.1]:4000",
        "Gloo connectFullMesh failed with [pair.cc:144] no error",
        "Socket Timeout while waiting for keys",
    ],
)
def test_a_second_group_that_lost_its_peers(message: str) -> None:
    events = (joining(20), destroyed(), joining(20, "refused"))
    (finding,) = ask("DD011", Source.RUN, run(*events, broke=message))
    assert (finding.level, finding.ranks, finding.where) == (Level.FAIL, (0, 1), where(20))
    assert finding.evidence[0].text == "first initialized at '127.0.0.1' port 29500"


def test_one_that_went_well_is_a_warning() -> None:
    (finding,) = ask("DD011", Source.RUN, run(joining(20), destroyed(), joining(40)))
    assert (finding.level, finding.where) == (Level.WARN, where(40))


def test_an_error_of_the_ranks_own_is_not_blamed_on_it() -> None:
    (finding,) = ask(
        "DD011", Source.RUN, run(joining(20), destroyed(), joining(20), broke="list index out of range")
    )
    assert finding.level is Level.WARN


@pytest.mark.parametrize(
    "events",
    [
        (joining(20),),
        (joining(20), destroyed()),
        (joining(20), joining(40, "refused")),
        (joining(20), destroyed(), joining(40, store="PrefixStore")),
        (joining(20, store="TCPStore"), destroyed(), joining(40)),
        (joining(20), destroyed(), joining(40, environ={**STORE, "MASTER_PORT": "29501"})),
        (joining(20, init_method="file:///tmp/a"), destroyed(), joining(40, init_method="file:///tmp/b")),
        (joining(20, size=1), destroyed(), joining(40, size=1)),
    ],
)
def test_stores_that_differ_or_are_asked_once(events: tuple[GroupEvent, ...]) -> None:
    assert isinstance(ask("DD011", Source.RUN, run(*events)), Passed)

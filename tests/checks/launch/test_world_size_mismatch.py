"""DD005 on recorded runs: numbers and addresses that contradict torchrun's."""

from typing import Any

from ddpdoctor.model import Passed, Skipped, Source
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.recorder.patches.calls import VariableSet
from ddpdoctor.trace import Trace
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, where

CHECK = check("DD005")
AGENT = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}


def launched(
    given: dict[str, Any] | None = None,
    action: str = "init",
    started: dict[str, str] | None = None,
    **now: str,
) -> Trace:
    """Two ranks of torchrun: what they gave to init_process_group, and what they changed in the environment."""

    def change(rank: int, one: Recording) -> Recording:
        told = {**AGENT, "RANK": str(rank), "WORLD_SIZE": "2", **(started or {})}
        joining = GroupEvent(
            action, 0.0, where(20), "gloo", rank, 2, arguments=given or {}, environ={**told, **now}
        )
        return replace(one, environ=told, groups=(joining,))

    return recorded(change=change)


def test_what_agrees_passes() -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, launched()), Passed)
    assert isinstance(ask(CHECK.code, Source.RUN, launched({"world_size": 2})), Passed)
    assert isinstance(ask(CHECK.code, Source.RUN, launched({"world_size": -1, "rank": -1})), Passed)


def test_a_number_in_the_script() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, launched({"world_size": 8}, action="joining"))
    assert finding.headline == "ranks 0-1 joined with world_size 8 where the launcher set WORLD_SIZE=2"
    assert (finding.ranks, finding.where) == ((0, 1), where(20))


def test_a_number_put_into_the_environment() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, launched(WORLD_SIZE="4"))
    assert finding.headline == "ranks 0-1 joined with world_size 4 where the launcher set WORLD_SIZE=2"


def test_a_rank_of_a_spawned_process() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, launched({"rank": 0, "world_size": "2"}))
    assert finding.headline == "rank 1 joined with rank 0 where the launcher set RANK=1"


def test_ranks_that_spawned_processes_of_each_rank_took() -> None:
    """mp.spawn under torchrun: each of its two processes starts two."""

    def change(rank: int, one: Recording) -> Recording:
        told = {**AGENT, "RANK": str(1 - rank), "WORLD_SIZE": "2"}
        joining = GroupEvent(
            "init", 0.0, where(20), "gloo", rank, 2, arguments={"rank": rank, "world_size": 2}, environ=told
        )
        return replace(one, environ=told, groups=(joining,))

    (finding,) = ask(CHECK.code, Source.RUN, recorded(change=change))
    assert finding.headline == (
        "ranks 0-1 were taken by processes to which the launcher gave others: rank 0 by RANK=1"
    )
    assert [one.text for one in finding.evidence] == ["rank 0 where RANK=1", "rank 1 where RANK=0"]


def test_another_launcher_may_count_nodes() -> None:
    """mp.spawn on one of two nodes, with RANK and WORLD_SIZE of the node, as in torch's imagenet example."""

    def change(rank: int, one: Recording) -> Recording:
        told = {"RANK": "0", "WORLD_SIZE": "1"}
        given = {"rank": rank, "world_size": 2}
        joining = GroupEvent("init", 0.0, where(20), "gloo", rank, 2, arguments=given, environ=told)
        return replace(one, environ=told, groups=(joining,))

    assert isinstance(ask(CHECK.code, Source.RUN, recorded(change=change)), Skipped)


def test_a_port_of_the_scripts_own_where_nobody_met() -> None:
    (finding,) = ask(CHECK.code, Source.RUN, launched(action="joining", MASTER_PORT="12355"))
    assert finding.headline == "ranks 0-1 overwrote MASTER_PORT, and did not join the process group"
    assert finding.evidence[0].text == "MASTER_PORT: '29500' from torchrun, '12355' when it joined"


def test_the_line_that_sets_the_port_is_named() -> None:
    def with_settings(*values: str) -> Trace:
        settings = [VariableSet("MASTER_PORT", value, where(line)) for line, value in enumerate(values, 7)]
        trace = launched(action="joining", MASTER_PORT="12355")
        return replace(
            trace,
            ranks=tuple(
                replace(rank, recording=replace(rank.recording, record=Record.made(*settings)))
                for rank in trace.ranks
            ),
        )

    (finding,) = ask(CHECK.code, Source.RUN, with_settings("12355"))
    assert finding.where == where(7)
    (finding,) = ask(CHECK.code, Source.RUN, with_settings("12355", "29500"))
    assert finding.where == where(20)


def test_a_port_of_the_scripts_own_that_works() -> None:
    assert isinstance(ask(CHECK.code, Source.RUN, launched(MASTER_PORT="12355")), Passed)


def test_two_names_of_this_host_are_one() -> None:
    assert isinstance(
        ask(CHECK.code, Source.RUN, launched(action="refused", MASTER_ADDR="localhost")), Passed
    )

"""Every script here stands still until the timeout of its process group: who is to blame is found in seconds.

Each runs on three ranks, with gloo's default timeout of 30 minutes; the first of each check on two as well, and those
of process groups on four. It is judged once more without what the flight recorder holds, on which nothing may depend.
Scripts say what is to be found as those of the folder above do; ``# at least 3 ranks`` leaves out 2. To look at one
while writing it:

    python -m tests.support.forked tests/sick/hangs/dd307_stopped.py 3 1.5
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.trace import Trace
from tests.support.diagnosis import diagnosis_of
from tests.support.expectations import Expected, as_expected, expectations, first_of_each_check
from tests.support.forked import Ran, judged_again, run_forked

SCRIPTS = sorted(Path(__file__).parent.glob("dd*.py"))
ON_TWO_RANKS = first_of_each_check(SCRIPTS)
OF_STACKS = ("DD301", "DD302", "DD306", "DD307", "DD309")
"""Diseases that stacks alone can show."""
HANG_AFTER = 1.5
"""Seconds; a user's job gets 5 and more."""


def sizes(script: Path) -> list[int]:
    least = re.search(r"# at least (\d) ranks", script.read_text())
    on_two = script in ON_TWO_RANKS and not least
    return [3, *([2] if on_two else []), *([4] if script.stem.startswith("dd309") else [])]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_culprit_and_its_line_are_named(script: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        runs = {
            size: pool.submit(hang, script, tmp_path, size, slot) for slot, size in enumerate(sizes(script))
        }
    for size, run in runs.items():
        ran, expected = run.result(), expectations(script, size)
        assert told(ran, script) == expected, f"{size} ranks: {explain(ran)}"
        alone = without_flight_recorder(ran)
        assert told(alone, script) == expected, f"{size} ranks without the flight recorder: {explain(alone)}"
        assert_stacks_say_no_more_than_they_show(ran.trace, expected)


def hang(script: Path, folder: Path, size: int, slot: int) -> Ran:
    return run_forked(script, folder / f"of_{size}", nproc=size, hang_after=HANG_AFTER, slot=slot)


def without_flight_recorder(ran: Ran) -> Ran:
    if ran.trace.snapshot is None:
        return ran
    return judged_again(ran, replace(ran.trace, snapshot=replace(ran.trace.snapshot, flight={})))


def assert_stacks_say_no_more_than_they_show(trace: Trace, expected: list[Expected]) -> None:
    """As ``ddpdoctor hang`` judges a job without any record of ours."""
    if any(one.failure for one in trace.ranks):
        return  # what two collectives do that meet each other is gloo's choice: mostly they wait, some end in an error
    assert trace.snapshot is not None
    processes = tuple(replace(one, handles=None) for one in trace.snapshot.processes)
    alone = replace(trace.snapshot, processes=processes, flight={}, world_size=len(trace.ranks))
    verdict = diagnosis_of(Trace((), snapshot=alone))
    assert verdict is not None
    assert verdict.code in OF_STACKS
    if expected[0].code in ("DD306", "DD307"):
        line = verdict.where.line if verdict.where else None
        assert (verdict.code, line, verdict.culprits) == (
            expected[0].code,
            expected[0].line,
            expected[0].ranks,
        )


def told(ran: Ran, script: Path) -> list[Expected]:
    found = ran.told()
    return sorted((as_expected(one, script) for one in found), key=str)


def explain(ran: Ran) -> str:
    return "\n\n".join([*(str(one) for one in ran.findings), *ran.errors])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_named_for_its_disease(script: Path) -> None:
    assert {one.code.lower() for one in expectations(script, 3)} == {script.stem.partition("_")[0]}

"""Every script here stands still until the timeout of its process group: who is to blame is found in seconds.

Each runs at 2, 3 and 4 ranks at once, with gloo's default timeout of 30 minutes, and once more with the flight recorder
switched off. Scripts say what is to be found as those of the folder above do; ``# at least 3 ranks`` leaves out 2.
To look at one while writing it:

    python -m tests.support.forked tests/sick/hangs/dd307_stopped.py 3 1.5
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.model import Level
from ddpdoctor.trace import Trace
from tests.support.diagnosis import diagnosis_of
from tests.support.expectations import Expected, as_expected, expectations
from tests.support.forked import Ran, run_forked

SCRIPTS = sorted(Path(__file__).parent.glob("dd*.py"))
OF_STACKS = ("DD301", "DD302", "DD306", "DD307", "DD309")
"""Diseases that stacks alone can show."""
HANG_AFTER = 1.5
"""Seconds; a user's job gets 5 and more."""


def sizes(script: Path) -> list[int]:
    least = re.search(r"# at least (\d) ranks", script.read_text())
    return [size for size in (2, 3, 4) if size >= int(least[1] if least else 2)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_culprit_and_its_line_are_named(script: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        runs = {size: pool.submit(hang, script, tmp_path, size) for size in sizes(script)}
    for size, run in runs.items():
        ran = run.result()
        assert told(ran, script) == expectations(script, size), f"{size} ranks: {explain(ran)}"
        assert_stacks_say_no_more_than_they_show(ran.trace, expectations(script, size))


def hang(script: Path, folder: Path, size: int) -> Ran:
    # One size of each with the flight recorder off, so that nothing depends on it.
    environ = {"TORCH_FR_BUFFER_SIZE": "0"} if size == 3 else {}
    return run_forked(
        script, folder / f"of_{size}", nproc=size, hang_after=HANG_AFTER, slot=size, environ=environ
    )


def assert_stacks_say_no_more_than_they_show(trace: Trace, expected: list[Expected]) -> None:
    """As ``ddpdoctor hang`` judges a job without any record of ours."""
    if any(one.failure for one in trace.ranks):
        return  # what two collectives do that meet each other is gloo's choice: mostly they wait, some end in an error
    assert trace.standstill is not None
    processes = tuple(replace(one, handles=None) for one in trace.standstill.processes)
    alone = replace(trace.standstill, processes=processes, flight={}, world_size=len(trace.ranks))
    verdict = diagnosis_of(Trace((), standstill=alone))
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
    found = (one for one in ran.findings if one.level is not Level.INFO)
    return sorted((as_expected(one, script) for one in found), key=str)


def explain(ran: Ran) -> str:
    return "\n\n".join([*(str(one) for one in ran.findings), *ran.errors])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_named_for_its_disease(script: Path) -> None:
    assert {one.code.lower() for one in expectations(script, 3)} == {script.stem.partition("_")[0]}

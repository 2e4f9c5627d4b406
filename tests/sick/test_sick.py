"""Every script here and in ddpdoctor/demos has one disease: it is found, with its ranks and line, and nothing else is.

A script says by comments what is to be found: tests/support/expectations.py. Each runs on three ranks, the first of
each check on two as well. One that starts its ranks itself, by mp.spawn, gets their number as its first argument. To
look at one while writing it:

    python -m tests.support.forked tests/sick/dd103_set_epoch_never_called.py 3
"""

from pathlib import Path

import pytest

from ddpdoctor.demos import demos
from tests.support.expectations import as_expected, expectations, first_of_each_check
from tests.support.forked import needs_gpus, run_alone, run_forked, starts_ranks_itself

SCRIPTS = sorted([*Path(__file__).parent.glob("dd*.py"), *(demo.path for demo in demos())])
ON_TWO_RANKS = sorted(first_of_each_check(SCRIPTS))


@pytest.mark.parametrize(
    ("script", "nproc"),
    [*((script, 3) for script in SCRIPTS), *((script, 2) for script in ON_TWO_RANKS)],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_the_disease_is_found_and_nothing_else(script: Path, nproc: int, tmp_path: Path) -> None:
    if starts_ranks_itself(script):
        ran = run_alone(script, tmp_path / "ran", str(nproc))
    else:
        ran = run_forked(script, tmp_path / "ran", nproc=nproc, rehearse=needs_gpus(script))
    expected = expectations(script, nproc)
    told = ran.told(*(one.code for one in expected))
    found = sorted((as_expected(one, script) for one in told), key=str)
    assert found == expected, "\n\n".join([*(str(one) for one in ran.findings), *ran.errors])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_named_for_its_disease(script: Path) -> None:
    codes = {one.code.lower() for one in expectations(script, 2)}
    assert script.stem.partition("_")[0] in codes

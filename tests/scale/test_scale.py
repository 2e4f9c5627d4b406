"""What shows only at scale is found in a rehearsal of 64 ranks, and right scripts are silent at any size.

Every script here is right on two ranks, and sick on 64 in hosts of 8; its comments say what is to be found there
(tests/support/expectations.py), of which only the real ranks can be named. A few run in the suite; all of them, and
right scripts at 8, 64 and 512 ranks, by a command of its own:

    python -m tests.scale
"""

from pathlib import Path

import pytest

from tests.scale.corpus import SICK, found_at_scale, is_silent
from tests.support.expectations import expectations

IN_SUITE = ("dd105_rank_of_the_node", "dd106_last_ranks_without_a_sample", "dd802_global_rank_as_device")
HEALTHY = (("collectives_of_groups", 512), ("fully_sharded_gpus", 8), ("zero_redundancy", 512))
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "script", [script for script in SICK if script.stem in IN_SUITE], ids=lambda it: it.stem
)
def test_what_shows_at_scale_is_found(script: Path, tmp_path: Path) -> None:
    assert found_at_scale(script, tmp_path) == ""


@pytest.mark.parametrize(("name", "size"), HEALTHY)
def test_right_scripts_are_silent_at_scale(name: str, size: int, tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "healthy" / f"{name}.py"
    assert is_silent(script, size, tmp_path) == ""


@pytest.mark.parametrize("script", SICK, ids=lambda script: script.stem)
def test_a_script_is_named_for_its_disease(script: Path) -> None:
    assert {expected.code.lower() for expected in expectations(script, 64)} == {script.stem.partition("_")[0]}

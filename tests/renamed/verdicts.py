"""What is found in a script of tests/sick or tests/healthy whose variables, functions and classes are renamed."""

from pathlib import Path

from tests.healthy.test_healthy import SCRIPTS as HEALTHY
from tests.sick.test_sick import SCRIPTS as SICK
from tests.support.expectations import as_expected, expectations
from tests.support.forked import needs_gpus, run_forked, starts_ranks_itself
from tests.support.renamed import MISLEADING, NEUTRAL, write_renamed

NAMES = {"neutral": NEUTRAL, "misleading": MISLEADING}
SCRIPTS = [script for script in (*SICK, *HEALTHY) if not starts_ranks_itself(script)]
"""The comments of each say what is found in it, which its own test holds under its own names."""
RANKS = 3


def difference(script: Path, names: tuple[str, ...], folder: Path) -> str:
    """How the verdict on the renamed script differs from that on the script; empty where it does not."""
    renamed = write_renamed(script, folder / "script", names)
    ran = run_forked(renamed, folder / "ran", nproc=RANKS, rehearse=needs_gpus(script))
    expected = expectations(script, RANKS)
    wanted = {it.code for it in expected}
    shown = ran.told(*wanted)
    found = sorted((as_expected(it, renamed) for it in shown), key=str)
    return "" if found == expected else f"{found} instead of {expected}; {ran.errors[:1]}"

"""Some of the scripts through the whole command, under each kind of launch, as a user runs them."""

import sys
from pathlib import Path

import pytest

from tests.support.command import Done, ddpdoctor
from tests.support.expectations import expectations

SICK, HEALTHY = Path(__file__).parent, Path(__file__).parents[1] / "healthy"
DEMOS = Path(__file__).parents[2] / "ddpdoctor" / "demos"


def check(folder: Path, *words: str) -> Done:
    options = ("--nproc", "2", "--ignore", "host,group", "--format", "json", "-q")
    return ddpdoctor("check", *options, *words, cwd=folder, env={"TMPDIR": str(folder)})


# The second changes its environment before it imports torch, which is seen in a process of its own only.
@pytest.mark.parametrize("name", ["dd204_one_rank_skips", "dd005_variables_set_in_the_script"])
def test_a_disease_is_found_under_torchrun(name: str, tmp_path: Path) -> None:
    script = next(folder / f"{name}.py" for folder in (DEMOS, SICK) if (folder / f"{name}.py").exists())
    done = check(tmp_path, str(script))
    expected = {(one.code, one.line, one.ranks) for one in expectations(script, 2)}
    found = {(one["code"], (one["where"] or {}).get("line"), tuple(one["ranks"])) for one in findings(done)}
    assert found == expected, done.out + done.err
    assert done.status == 1


def test_a_disease_is_found_through_a_launch_line(tmp_path: Path) -> None:
    script = DEMOS / "dd201_module_called.py"
    line = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "3",
        str(script),
    )
    done = check(tmp_path, "--", *line)
    assert {one["code"] for one in findings(done)} == {one.code for one in expectations(script, 3)}, done.out
    assert done.report["run"]["nproc"] == 3


@pytest.mark.parametrize("name", ["join_uneven", "aborts_after_its_end"])
def test_a_right_script_ends_with_0(name: str, tmp_path: Path) -> None:
    done = check(tmp_path, str(HEALTHY / f"{name}.py"))
    assert (done.status, findings(done)) == (0, []), done.out + done.err


def findings(done: Done) -> list[dict]:
    return [one for one in done.report["findings"] if one["level"] != "info"]

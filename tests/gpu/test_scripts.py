"""Scripts written for CUDA and NCCL: right ones stay what they are, sick ones are named at their line."""

from pathlib import Path

import pytest

from tests.gpu.support import HERE, checked, on_gpu, plain
from tests.support.expectations import expectations

pytestmark = on_gpu

RIGHT = sorted(path for path in (HERE / "right").glob("*.py") if path.stem != "digest")
SICK = sorted((HERE / "sick").glob("dd*.py"))


def run_twice(script: Path, folder: Path) -> tuple[str, str]:
    """The digests of the weights after a plain and a recorded run."""
    digests = []
    for name in ("plain", "recorded"):
        work = folder / name
        work.mkdir()
        env = {"DIGEST": str(work / "digest"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if name == "plain":
            plain(script, work, env)
        else:
            done = checked(script, work, "--full", env=env)
            assert (done.codes(), done.status) == (set(), 0), done.out
        digests.append((work / "digest").read_text())
    return digests[0], digests[1]


@pytest.mark.parametrize("script", RIGHT, ids=lambda script: script.stem)
def test_a_right_script_is_silent_and_trains_bit_for_bit_as_before(script, tmp_path):
    before, after = run_twice(script, tmp_path)
    assert before == after


@pytest.mark.parametrize("script", RIGHT, ids=lambda script: script.stem)
def test_a_right_script_is_silent_when_it_is_cut_short(script, tmp_path):
    done = checked(script, tmp_path)
    assert (done.codes(), done.status) == (set(), 0), done.out


@pytest.mark.parametrize("script", SICK, ids=lambda script: script.stem)
def test_a_sick_script_is_named(script, tmp_path):
    done = checked(script, tmp_path)
    expected = {one.code: one.line for one in expectations(script, 1)} or {script.stem[:5].upper(): None}
    lines = {
        finding["code"]: finding["where"] and finding["where"]["line"] for finding in done.report["findings"]
    }
    assert done.codes() == {*expected}, done.out
    assert [code for code, line in expected.items() if line and lines[code] != line] == [], done.out

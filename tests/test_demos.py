"""The scripts of ``ddpdoctor demo``: each is found sick (tests/sick/test_sick.py), and its corrected twin healthy.

The commands of docs/tour.md run one from start to end.
"""

from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.cli import run
from ddpdoctor.demos import Demo, demos
from tests.support.forked import run_forked

DEMOS = pytest.mark.parametrize("demo", demos(), ids=lambda demo: demo.path.stem)


@DEMOS
def test_a_demo_is_a_script_with_a_problem_and_one_without(demo: Demo) -> None:
    assert registry.by_code(demo.code) is not None
    assert "expect:" not in demo.sick
    assert demo.summary.endswith(".")
    assert demo.sick != demo.healthy
    for text in (demo.sick, demo.healthy):
        compile(text, demo.path.name, "exec")


@DEMOS
@pytest.mark.slow
def test_in_the_corrected_script_nothing_is_found(demo: Demo, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(demo.healthy)
    ran = run_forked(script, tmp_path / "ran", nproc=2)
    assert ran.told() == [], ran.errors
    assert ran.trace.broken is None


def test_the_list_names_each_check_that_has_a_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{demo.code}  " in listed for demo in demos())
    assert max(map(len, listed.splitlines())) <= 80


def test_a_check_without_a_demo_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "DD002"]) == 2
    assert "ddpdoctor: error: no demo shows 'DD002'; " in capsys.readouterr().err


def test_a_script_that_somebody_changed_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "dd201_module_called.py"
    script.write_text("mine")
    assert run(["demo", "--folder", str(tmp_path)]) == 2
    assert "was changed; --folder names another folder" in capsys.readouterr().err
    assert script.read_text() == "mine"

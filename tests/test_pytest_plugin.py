"""The plugin of pytest, in a pytest of its own; the examination is stood in for; docs/python.md runs a real one."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.command import environment

STAND_IN = """
    import ddpdoctor.api
    from ddpdoctor.model import Evidence, Finding, Level, Where

    def check(script, *args, **options):
        print("given", script, args, sorted(options.items()))
        finding = Finding("DD101", Level.FAIL, "ranks read the same", "why", "fix", where=Where("train.py", 3))
        findings = (finding,) if args else ()
        status = 2 if script == "broken.py" else int(bool(findings))
        return ddpdoctor.api.Report("1.0.0", (), status, 0.1, findings=findings, notes=("it did not start",))

    ddpdoctor.api.check = check
"""
TESTS = """
    import pytest

    def test_healthy(ddp_check):
        assert ddp_check("train.py", nproc=3).exit_status == 0

    def test_sick(ddp_check):
        ddp_check("train.py", "--epochs", 1)

    @pytest.mark.ddp_expect("data-not-sharded")
    def test_expected(ddp_check):
        assert len(ddp_check("train.py", "sick").problems) == 1

    @pytest.mark.ddp_expect("DD101", "DD103")
    def test_missing(ddp_check):
        ddp_check("train.py", "sick")

    def test_broken(ddp_check):
        ddp_check("broken.py")
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugins = ("-p", "no:cacheprovider", "-p", "ddpdoctor.pytest_plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options],
        cwd=folder,
        env=environment({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_training.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "conftest.py").write_text(textwrap.dedent(STAND_IN))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return tmp_path


def test_findings_fail_a_test_unless_they_are_expected(folder: Path) -> None:
    out = run_pytest(folder, "--ddp-nproc", "4", "--ddp-rehearse").stdout
    assert "3 failed, 2 passed" in out, out
    for name in ("sick", "missing", "broken"):
        assert f"FAILED test_training.py::test_{name} - " in out
    assert "FAIL[DD101]: ranks read the same\n  --> train.py:3\n" in out
    assert "DD103 was expected and not found" in out
    assert "the script could not be examined\nit did not start" in out
    assert "- Captured ddpdoctor call -" in out
    assert "given train.py ('--epochs', 1) [('nproc', 4), ('rehearse', True), ('select', ['run'])]" in out


def test_the_plugin_alone_imports_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_it():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] in ('ddpdoctor', 'torch', 'typer')}\n"
        "    assert ours == {'ddpdoctor', 'ddpdoctor.pytest_plugin'}\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_script_beside_the_test_is_run_by_each_worker(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "train.py").touch()
    (tests / "conftest.py").write_text(textwrap.dedent(STAND_IN))
    (tests / "test_training.py").write_text(
        "import pytest\n\n@pytest.mark.parametrize('number', range(2))\n@pytest.mark.ddp_expect('DD101')\n"
        "def test_it(ddp_check, number, capsys):\n    ddp_check('train.py', number)\n"
        f"    assert '{tests / 'train.py'} ({{}},)'.format(number) in capsys.readouterr().out\n"
    )
    done = run_pytest(tmp_path, "-p", "xdist", "-n", "2")
    assert "2 passed" in done.stdout, done.stdout

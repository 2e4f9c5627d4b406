"""The same checks and the same trainer, however ddpdoctor came onto the machine, in a folder full of traps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, run

SETTINGS = ("wheel", "sdist", "editable", "PYTHONPATH", "bare checkout")
TRAP = 'raise ImportError("a module of the user: ddpdoctor has no business here")\n'


@pytest.fixture(scope="module")
def users_folder(tmp_path_factory):
    """A project with folders that are called as ours are."""
    project = tmp_path_factory.mktemp("project")
    for name in ("checks", "sample_trainer", "tests"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text(TRAP)
    return project


@pytest.fixture(scope="module", params=SETTINGS)
def ddpdoctor(request, environment, users_folder, checkout):
    """Runs Python code with ddpdoctor in one of the settings."""
    setting = request.param
    pythons = {
        "wheel": lambda: request.getfixturevalue("installed"),
        "sdist": lambda: environment(request.getfixturevalue("sdist")),
        "editable": lambda: environment(f"editable:{checkout}"),
    }
    python = pythons.get(setting, environment)()
    cwd = checkout if setting == "bare checkout" else users_folder
    environ = {"PYTHONPATH": str(checkout)} if setting == "PYTHONPATH" else {}
    return lambda *arguments: run(python, *arguments, cwd=cwd, **environ)


def test_every_check_is_found(ddpdoctor):
    listed = json.loads(ddpdoctor("-m", "ddpdoctor", "checks", "--format", "json"))
    files = [file for file in (ROOT / "checks").rglob("*.py") if file.name != "__init__.py"]
    assert len(listed) == len(files)


def test_the_bundled_trainer_is_found(ddpdoctor):
    code = "from ddpdoctor.job.trainer import trainer_script; print(trainer_script())"
    path = Path(ddpdoctor("-c", code).strip())
    assert path.read_text() == (ROOT / "sample_trainer" / "trainer.py").read_text()


def test_a_check_cannot_be_imported_under_another_name():
    command = [sys.executable, "-c", "import checks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "ask ddpdoctor.registry" in done.stderr

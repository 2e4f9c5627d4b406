"""The action and the pipelines of docs/ci.md: what a runner would do, done here."""

import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.packaging.documents import ROOT, blocks_of, users_environ

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PIPELINES = [yaml.safe_load(text) for text in blocks_of("docs/ci.md", "yaml")]
GITHUB, GITLAB = PIPELINES


def step(name: str) -> dict[str, Any]:
    (found,) = (one for one in ACTION["runs"]["steps"] if one["name"].startswith(name))
    return found


def run_step(name: str, python: Path, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as a runner does: bash -e, with the step's own variables."""
    one = step(name)
    assert set(environ) == set(one["env"])
    # As on a runner whose index is this machine: what is installed has to do.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_IGNORE_INSTALLED": "0"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"]]
    values = {**users_environ(python), **offline, **environ}
    return subprocess.run(command, cwd=folder, env=values, capture_output=True, text=True, check=False)


def installed_torch(python: Path) -> str:
    code = "import importlib.metadata as m; d = m.distribution('torch'); print(d.version, d.locate_file(''))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_action_installs_checks_and_reports(environment, checkout, tmp_path):
    python = environment()
    torch = installed_torch(python)

    installed = run_step("Install", python, tmp_path, SOURCE=str(checkout))
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert installed_torch(python) == torch
    assert (python.parent / "ddpdoctor").exists()

    options = {"NPROC": "2", "BACKEND": "gloo", "ARGS": "--select DD013,DD014 --timeout 60"}
    checked = run_step("Check", python, tmp_path, **options)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2 passed" in checked.stdout

    reported = run_step("Write", python, tmp_path, **options, JUNIT="report.xml")
    assert reported.returncode == 0, reported.stdout + reported.stderr
    assert len(ElementTree.parse(tmp_path / "report.xml").findall(".//testcase")) == 2


def test_the_action_fails_where_something_is_found_and_annotates_it(environment, wheel, tmp_path):
    python = environment(wheel)
    options = {"NPROC": "2", "BACKEND": "nosuch", "ARGS": "--select DD013"}
    done = run_step("Check", python, tmp_path, **options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error" in done.stdout


def test_options_of_the_action_are_words_and_never_code(environment, wheel, tmp_path):
    python = environment(wheel)
    options = {"NPROC": "2", "BACKEND": "", "ARGS": "--select $(touch bad);touch bad *"}
    assert run_step("Check", python, tmp_path, **options).returncode == 2
    assert not (tmp_path / "bad").exists()


def test_no_step_pastes_an_input_into_its_script():
    assert [one["name"] for one in ACTION["runs"]["steps"] if "${{" in one["run"]] == []


def test_every_input_in_the_workflow_is_one_of_the_action():
    used = [
        one for job in GITHUB["jobs"].values() for one in job["steps"] if "ddpdoctor" in one.get("uses", "")
    ]
    assert len(used) == 2
    assert {name for one in used for name in one["with"]} <= set(ACTION["inputs"])


@pytest.mark.parametrize("job", GITLAB)
def test_a_gitlab_job_writes_the_report_it_collects(job, tmp_path):
    (command,) = GITLAB[job]["script"]  # the whole of such a check is run as a command of the same page
    done = subprocess.run(
        ["bash", "-ec", f"{command} --select host"],
        cwd=tmp_path,
        env=users_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ElementTree.parse(tmp_path / GITLAB[job]["artifacts"]["reports"]["junit"])

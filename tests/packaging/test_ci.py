"""The action and the pipelines of docs/ci.md: what a runner would do, done here."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from ddpdoctor.cli.app import app
from tests.packaging.documents import ROOT, blocks_of, users_environ

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PIPELINES = [yaml.safe_load(text) for text in blocks_of("docs/ci.md", "yaml")]
GITHUB, GITLAB, PRE_COMMIT = PIPELINES
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
INPUTS, TEMPLATE = (ROOT / "templates" / "ddpdoctor.yml").read_text().split("---\n")
CHECK = [
    "SCRIPT",
    "SCRIPT_ARGS",
    "LAUNCH",
    "NPROC",
    "BACKEND",
    "REHEARSE",
    "BATCHES",
    "ARGS",
    "JUNIT",
    "SARIF",
    "FIX",
    "PAGE",
    "NAME",
]


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
    summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "outputs")}
    values = {**users_environ(python), **offline, **summary, **environ}
    return subprocess.run(command, cwd=folder, env=values, capture_output=True, text=True, check=False)


def installed_torch(python: Path) -> str:
    code = "import importlib.metadata as m; d = m.distribution('torch'); print(d.version, d.locate_file(''))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout


def run_check(python: Path, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The step that checks, with what a runner sets for it."""
    return run_step("Check", python, folder, **{name: inputs.get(name, "") for name in CHECK})


SCRIPT = """\
import sys
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("words:", sys.argv[1:])
dist.destroy_process_group()
"""


def test_the_action_installs_checks_and_reports(environment, checkout, tmp_path):
    python = environment()
    torch = installed_torch(python)

    installed = run_step("Install", python, tmp_path, SOURCE=str(checkout), FIX="fixes.patch")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert installed_torch(python) == torch
    assert (python.parent / "ddpdoctor").exists()

    (tmp_path / "train.py").write_text(SCRIPT)
    files = {"JUNIT": "report.xml", "SARIF": "report.sarif", "PAGE": "report.html", "FIX": "fixes.patch"}
    checked = run_check(
        python, tmp_path, SCRIPT="train.py", SCRIPT_ARGS="--lr\n * $(touch bad)", NPROC="2", BACKEND="gloo",
        BATCHES="4", ARGS="--select DD013,DD310 --timeout 60", NAME="cpu-3", **files,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "words: ['--lr', '*', '$(touch', 'bad)']" in checked.stderr
    assert "No problem found: " in checked.stdout
    assert len(ElementTree.parse(tmp_path / "report.xml").findall(".//testcase")) == 2
    assert json.loads((tmp_path / "report.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "summary.md").read_text().startswith("```\nddpdoctor ")
    assert not (tmp_path / "bad").exists()
    kept = {name: str(tmp_path / files[name.upper()]) for name in ("sarif", "page")}  # nothing to patch
    assert outputs(tmp_path) == {"name": "cpu-3", **kept}


def outputs(folder: Path) -> dict[str, str]:
    """What the step tells the steps after it."""
    return dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())


def test_a_check_that_could_not_begin_leaves_nothing_to_upload(installed, tmp_path):
    (tmp_path / "report.sarif").write_text("{}")  # of an earlier run
    inputs = {"SARIF": "report.sarif", "PAGE": "report.html", "ARGS": "--no-such-option", "NAME": "cpu-0"}
    assert run_check(installed, tmp_path, **inputs).returncode == 2
    assert outputs(tmp_path) == {"name": "cpu-0"}
    uploads = [one for one in ACTION["runs"]["steps"] if "uses" in one]
    names = [re.findall(r"steps\.check\.outputs\.(\w+) != ''", one["if"]) for one in uploads]
    assert names == [["sarif"], ["page"], ["fix"]]


def test_jobs_of_a_matrix_upload_under_names_of_their_own():
    name = step("Check")["env"]["NAME"]
    assert {"github.job", "strategy.job-index", "inputs.name"} <= set(re.findall(r"[a-z]+\.[a-z-]+", name))
    uploads = [one["with"] for one in ACTION["runs"]["steps"] if "uses" in one]
    called = [one.get("name") or one["category"] for one in uploads]
    assert all("${{ steps.check.outputs.name }}" in one for one in called)
    assert len({one["name"] for one in uploads if "name" in one}) == 2


def test_the_action_fails_where_something_is_found_and_annotates_it(installed, tmp_path):
    done = run_check(installed, tmp_path, NPROC="2", BACKEND="nosuch", ARGS="--select DD013")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error" in done.stdout
    assert "FAIL[DD013]" in (tmp_path / "summary.md").read_text()


def test_options_of_the_action_are_words_and_never_code(installed, tmp_path):
    for inputs in (
        {"ARGS": "--select $(touch bad);touch bad *"},
        {"LAUNCH": "nosuch $(touch bad) ;touch bad"},
    ):
        assert run_check(installed, tmp_path, **inputs).returncode == 2
    assert not (tmp_path / "bad").exists()


def test_no_step_pastes_an_input_into_its_script():
    assert [one["name"] for one in ACTION["runs"]["steps"] if "${{" in one.get("run", "")] == []


def test_every_input_in_the_workflow_is_one_of_the_action():
    used = [
        one for job in GITHUB["jobs"].values() for one in job["steps"] if "ddpdoctor" in one.get("uses", "")
    ]
    assert len(used) == 2
    assert {name for one in used for name in one["with"]} <= set(ACTION["inputs"])


def test_every_step_is_sound_and_every_input_is_used():
    steps = ACTION["runs"]["steps"]
    for step in steps:
        assert ("run" in step) != ("uses" in step)
        subprocess.run(["bash", "-nc", step.get("run", "")], check=True)
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(steps)))
    assert used == set(ACTION["inputs"])
    assert all("description" in value for value in ACTION["inputs"].values())


def template(**inputs: str) -> dict[str, Any]:
    """The template as GitLab fills it in."""
    declared = yaml.safe_load(INPUTS)["spec"]["inputs"]
    values = {name: str(about.get("default", "")) for name, about in declared.items()} | inputs
    filled = re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda match: values[match[1]], TEMPLATE)
    assert "$[[" not in filled
    return yaml.safe_load(filled)


def test_the_gitlab_template_writes_the_report_it_collects(tmp_path):
    (given,) = GITLAB["include"]
    ((_, job),) = template(**given["inputs"]).items()
    assert job["image"] == given["inputs"]["image"]
    (command,) = job["script"]
    assert command.endswith(f" {given['inputs']['script']}")
    line = command.removesuffix(given["inputs"]["script"]) + "--select host"
    done = subprocess.run(
        ["bash", "-ec", line],
        cwd=tmp_path,
        env=users_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    ElementTree.parse(tmp_path / job["artifacts"]["reports"]["junit"])


def test_the_pre_commit_hook_is_the_one_of_the_documents():
    (hook,) = HOOKS
    (repo,) = PRE_COMMIT["repos"]
    assert [one["id"] for one in repo["hooks"]] == [hook["id"]]
    assert (hook["language"], hook["pass_filenames"]) == ("system", False)
    words = shlex.split(hook["entry"])[1:]
    revision = f"{repo['rev']}:.pre-commit-hooks.yaml"
    shown = subprocess.run(["git", "show", revision], cwd=ROOT, capture_output=True, text=True, check=True)
    assert yaml.safe_load(shown.stdout) == HOOKS
    with pytest.raises(SystemExit):  # --help, after all of them were understood
        app([*words, "--help"], standalone_mode=True)

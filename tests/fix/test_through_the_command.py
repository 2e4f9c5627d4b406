"""``check --fix`` from its options to the user's files, by real runs."""

import json
import subprocess
import sys

import pytest

from tests.fix.forked import patched
from tests.sick.test_sick import SCRIPTS

SICK = {script.stem: script for script in SCRIPTS}


def ddpdoctor(folder, *words):
    command = [sys.executable, "-m", "ddpdoctor", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_verified_patch_is_shown_kept_and_written(tmp_path):
    script, before = tmp_path / "train.py", SICK["dd103_set_epoch_never_called"].read_text()
    script.write_text(before)
    done = ddpdoctor(
        tmp_path,
        "check",
        "--fix",
        "--apply",
        "--diff",
        "fix.patch",
        "--select",
        "run",
        "--format",
        "json",
        "train.py",
    )
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["patch"]["verified"], done.stdout + done.stderr
    after = before.replace("    for inputs", "    sampler.set_epoch(epoch)\n    for inputs")
    assert script.read_text() == after
    assert (tmp_path / "fix.patch").read_text() == finding["patch"]["diff"]
    script.write_text(before)
    subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
    assert script.read_text() == after


@pytest.mark.parametrize("words", [["--apply"], ["--force"], ["--diff", "fix.patch"]])
def test_what_is_about_patches_needs_fix(words, tmp_path):
    done = ddpdoctor(tmp_path, "check", *words)
    assert done.returncode == 2
    assert "requires --fix" in done.stderr


def test_patches_need_a_script(tmp_path):
    done = ddpdoctor(tmp_path, "check", "--fix")
    assert done.returncode == 2
    assert "--fix requires a script" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dd101_plain_loader", "dd310_never_destroyed"])
def test_a_patch_is_verified(name, tmp_path):
    (finding,) = patched(SICK[name], tmp_path, asked=[name[:5].upper()]).findings
    assert finding.patch.verified, finding.patch


def test_patches_are_verified_on_one_host(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    done = ddpdoctor(tmp_path, "check", "--fix", "--nnodes", "2", "--master-addr", "127.0.0.1", "train.py")
    assert done.returncode == 2
    assert "leave out --nnodes" in done.stderr


def test_a_script_with_uncommitted_changes_is_refused_before_it_runs(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("open('ran', 'w')\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    done = ddpdoctor(tmp_path, "check", "--fix", "--apply", "train.py")
    assert done.returncode == 2
    assert "--apply: 'train.py' is not tracked by git; commit it, or use --force" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_without_a_verified_patch_there_is_no_file_of_patches(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    done = ddpdoctor(tmp_path, "check", "--fix", "--diff", "fix.patch", "--select", "run", "train.py")
    assert "--diff: no patch was verified, so there is no fix.patch" in done.stdout + done.stderr
    assert not (tmp_path / "fix.patch").exists()

"""``ddpdoctor clean``, and the age at which a later run removes what was kept."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ddpdoctor.cli import run
from ddpdoctor.cli.run_folder import KEPT_SECONDS, hold

MARKER = ".ddpdoctor-run"
DAY = 86_400
SCRIPT = """import torch.distributed as dist
dist.init_process_group("gloo")
dist.destroy_process_group()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def kept(temporary: Path, name: str, days: float, *, marked: bool = True) -> Path:
    folder = temporary / name
    (folder / "job").mkdir(parents=True)
    (folder / "job" / "stderr.log").write_bytes(b"x" * 2048)
    if marked:
        (folder / MARKER).touch()
        os.utime(folder / MARKER, (time.time() - days * DAY,) * 2)
    return folder


def test_it_removes_what_is_older_and_lists_each(temporary, capsys):
    old, young = kept(temporary, "ddpdoctor-old", 9), kept(temporary, "ddpdoctor-young", 1)
    assert run(["clean", "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        f"would remove  {old}  2 KiB, 9 days old\n"
        f"would remove 1 run folder in {temporary}, 2 KiB; 1 run folder left "
        "(in use or newer; --older-than 0 removes the newer ones, too)\n"
    )
    assert old.exists()
    assert run(["clean"]) == 0
    assert capsys.readouterr().out.startswith(f"removed       {old}  2 KiB, 9 days old\nremoved 1 run folder")
    assert (old.exists(), young.exists()) == (False, True)
    assert run(["clean", "--older-than", "12h"]) == 0
    assert not young.exists()
    capsys.readouterr()
    assert run(["clean", "--older-than", "0"]) == 0
    assert capsys.readouterr().out == f"removed 0 run folders in {temporary}\n"


@pytest.mark.parametrize("age", ["7", "7 days", "-1d", "d", ""])
def test_an_age_has_a_unit(age, temporary, capsys):
    assert run(["clean", "--older-than", age]) == 2
    assert f"'{age}' is not an age such as 30m, 12h or 7d" in capsys.readouterr().err


def test_it_touches_only_what_ddpdoctor_made(temporary, tmp_path, capsys):
    others = kept(temporary, "ddpdoctor-mine", 90, marked=False)
    named_otherwise = kept(temporary, "results", 90)
    precious = kept(tmp_path, "precious", 90)
    link = temporary / "ddpdoctor-link"
    link.symlink_to(precious)
    linked_marker = kept(temporary, "ddpdoctor-marker", 90, marked=False)
    (linked_marker / MARKER).symlink_to(precious / MARKER)
    old = kept(temporary, "ddpdoctor-old", 90)
    (old / "data").symlink_to(precious)
    assert run(["clean", "--older-than", "0"]) == 0
    assert not old.exists()
    for folder in (others, named_otherwise, precious, link, linked_marker):
        assert (folder / "job" / "stderr.log").exists()


def test_it_leaves_a_folder_in_use(temporary, capsys):
    folder = kept(temporary, "ddpdoctor-used", 90)
    lock = hold(folder)
    assert run(["clean"]) == 0
    assert capsys.readouterr().out.startswith(f"in use        {folder}")
    os.close(lock)
    assert run(["clean"]) == 0
    assert not folder.exists()


@pytest.mark.slow
def test_a_later_run_removes_what_is_too_old_and_tells_the_size_of_its_own(temporary):
    old = kept(temporary, "ddpdoctor-old", KEPT_SECONDS / DAY + 1)
    young = kept(temporary, "ddpdoctor-young", KEPT_SECONDS / DAY - 1)
    command = [
        sys.executable,
        "-m",
        "ddpdoctor",
        "check",
        "--keep",
        "--quiet",
        "--select",
        "run",
        "--nproc",
        "1",
    ]
    (temporary.parent / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [*command, "train.py"], cwd=temporary.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("kept:")]
    assert line.endswith(" KiB)")
    assert (old.exists(), young.exists()) == (False, True)
    own = Path(line.split()[1])
    assert run(["clean", "--older-than", "0"]) == 0
    assert not own.exists()
    assert not young.exists()

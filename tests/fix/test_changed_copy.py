"""The copy in which a changed script runs."""

import os
import subprocess
import sys
import time

from ddpdoctor.fix.changed_copy import ChangedCopy


def test_data_is_linked_what_is_written_stays_in_the_copy(tmp_path):
    project = tmp_path / "project"
    for name in ("train.py", "data/images/0.png", "runs/old.log", "runs/new.log"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
        os.utime(project / name, (1, 1))
    (tmp_path / "shared.txt").write_text("shared")
    since = time.time() - 100
    (project / "runs" / "new.log").write_text("of the run")
    (project / "made").mkdir()
    with ChangedCopy(project, since, {project / "train.py": b"changed"}) as shadow:
        copy = shadow.working
        assert (copy / "train.py").read_bytes() == b"changed"
        assert (copy / "data/images/0.png").read_text() == "data/images/0.png"
        assert (copy / "runs/old.log").is_symlink()
        assert not (copy / "runs/new.log").exists()
        assert not (copy / "made").exists()
        assert (copy / "../shared.txt").resolve().read_text() == "shared"
        (copy / "data/images/1.png").write_text("new")
        assert shadow.real(f"{copy}/train.py") == str(project / "train.py")
        root = shadow.root
    assert not root.exists()
    assert (project / "train.py").read_text() == "train.py"
    assert sorted(path.name for path in (project / "data/images").iterdir()) == ["0.png"]


def test_a_script_that_is_as_it_was_imports_a_changed_module(tmp_path):
    (tmp_path / "train.py").write_text("import utils\n\nprint(utils.VALUE, end='')\n")
    (tmp_path / "utils.py").write_text("VALUE = 'as it was'\n")
    with ChangedCopy(tmp_path, time.time() + 100, {tmp_path / "utils.py": b"VALUE = 'changed'\n"}) as shadow:
        command = [sys.executable, "train.py"]
        done = subprocess.run(command, cwd=shadow.working, capture_output=True, text=True, check=True)
    assert done.stdout == "changed"

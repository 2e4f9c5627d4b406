"""README's own commands work after README's own installation: in an environment that has what it installs, no more."""

import re
import shutil
import subprocess
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.conftest import pip_install
from tests.packaging.documents import blocks_of, users_environ
from tests.packaging.test_documents import SCRIPT

pytestmark = pytest.mark.slow


def required(text: str, seen: dict[str, Distribution]) -> None:
    """Note every distribution that pip installs for a requirement."""
    need = Requirement(text)
    found = distribution(need.name)
    seen[found.name] = found
    for one in found.requires or ():
        other = Requirement(one)
        wanted = (
            any(other.marker.evaluate({"extra": extra}) for extra in (need.extras or {""}))
            if other.marker
            else True
        )
        if wanted and distribution(other.name).name not in seen:
            required(one, seen)


@pytest.fixture(scope="module")
def readme_python(environment, wheel) -> Path:
    """The interpreter of an environment that has the distributions of README's command."""
    (line,) = [text for text in blocks_of("README.md", "bash") if "check --nproc 4" in text]
    (extras,) = re.findall(r"pip install -c constraints.txt '?\.(\[[\w,]+\])?", line)
    seen: dict[str, Distribution] = {}
    python = environment()
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    (site / "dependencies.pth").unlink()
    pip_install(python, wheel)
    (metadata,) = site.glob("ddpdoctor-*.dist-info")
    for need in map(Requirement, Distribution.at(metadata).requires or ()):
        asked = {"", *extras.strip("[]").split(",")}
        if not need.marker or any(need.marker.evaluate({"extra": extra}) for extra in asked):
            required(str(need).partition(";")[0], seen)
    for one in seen.values():
        link(one, site)
    return python


def link(one: Distribution, site: Path) -> None:
    """Lend what a distribution has at the top of its folder."""
    for top in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
        source = Path(str(one.locate_file(top)))
        if source.exists() and not (site / top).exists():
            (site / top).symlink_to(source)
    for program in {
        file.name for file in one.files or () if file.parts[0] == ".." and file.parent.name == "bin"
    }:
        source = shutil.which(program, path=str(Path(str(one.locate_file("../../../bin")))))
        if source:
            (site.parents[2] / "bin" / program).symlink_to(source)


def test_a_patch_needs_nothing_more_and_no_rank_warns(readme_python, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [readme_python, "-m", "ddpdoctor", "check", "--fix", "--ignore", "host,group", "train.py"]
    environ = users_environ(readme_python)
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "patch: " in done.stdout
    assert "numpy" not in (done.stdout + done.stderr).lower()

"""What a release is built from: the same bytes each time, and an image that needs no network."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ddpdoctor
from tests.packaging.conftest import NOT_SOURCE, ROOT, run

pytestmark = pytest.mark.slow
EPOCH = "1764288000"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_second_build_in_a_clean_folder_has_the_same_bytes(kind, tmp_path):
    built = []
    for name in ("first", "second"):
        source, into = tmp_path / name / "source", tmp_path / name / "dist"
        shutil.copytree(ROOT, source, ignore=NOT_SOURCE, copy_function=shutil.copyfile)  # other times
        for file in filter(Path.is_file, source.rglob("*")):
            file.chmod(0o600 if name == "second" else 0o664)
        code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
        run(sys.executable, "-c", code, into, cwd=source, SOURCE_DATE_EPOCH=EPOCH)
        built.append(next(into.iterdir()))
    assert built[0].name == built[1].name
    assert built[0].read_bytes() == built[1].read_bytes()


def test_the_image_is_made_of_the_wheel_alone(environment, wheel, tmp_path):
    (command,) = re.findall(r"^RUN (.*)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    shutil.copy(wheel, tmp_path)
    python = environment()
    install = (
        command.partition(" && ")[0].replace("/tmp/dist", str(tmp_path)).replace("python", str(python), 1)
    )
    install += " --no-deps --ignore-installed"  # the environment lends the dependencies
    subprocess.run(shlex.split(install), check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
    said = run(python.parent / "ddpdoctor", "--version", cwd=tmp_path)
    assert ddpdoctor.__version__ in said


def test_what_names_the_version_has_this_one():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f'version: "{ddpdoctor.__version__}"' in citation
    for document in ("README.md", "docs/install.md"):
        named = re.findall(r"ddpdoctor[ -](\d+\.\d+\.\d+)", (ROOT / document).read_text())
        assert set(named) == {ddpdoctor.__version__}, document
    assert re.search(
        rf"^## \[(Unreleased|{re.escape(ddpdoctor.__version__)})\]", (ROOT / "CHANGELOG.md").read_text(), re.M
    )

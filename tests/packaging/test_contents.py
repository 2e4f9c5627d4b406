import re
import tarfile
import zipfile
from pathlib import Path

from tests.packaging.conftest import build

DATA = {
    "ddpdoctor/py.typed",
    "ddpdoctor/report/schema.json",
    *(f"ddpdoctor/report/html/{name}" for name in ("figures.html", "page.html", "style.css")),
}
TRAINER = ("configs/*.yaml", "launch/*")
"""What people copy from beside the trainer."""


def installed_names(checkout: Path) -> set[str]:
    """Every source file under the name by which it is installed."""
    own = {str(file.relative_to(checkout)) for file in (checkout / "ddpdoctor").rglob("*.py")}
    inside = {
        f"ddpdoctor/{file.relative_to(checkout)}"
        for folder in ("checks", "sample_trainer")
        for file in (checkout / folder).rglob("*.py")
    }
    trainer = checkout / "sample_trainer"
    copied = {
        f"ddpdoctor/{file.relative_to(checkout)}" for pattern in TRAINER for file in trainer.glob(pattern)
    }
    assert {"ddpdoctor/sample_trainer/launch/train.slurm"} < copied
    fixes = {str(file.relative_to(checkout)) for file in (checkout / "ddpdoctor/demos").glob("*.fix")}
    return own | inside | copied | fixes


def test_the_wheel_installs_one_top_level_name(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ddpdoctor"}


def test_the_wheel_has_every_source_file_and_data_file(checkout, wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == installed_names(checkout) | DATA


def test_the_wheel_never_pins_torch(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    needs = re.findall(r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE)
    assert [need for need in needs if need.startswith("torch")] == ["torch>=2.4"]


def test_the_sdist_builds_the_same_wheel(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # of Python 3.11.4 and later
        archive.extractall(tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    (tmp_path / "wheel").mkdir()
    again = build("wheel", source, tmp_path / "wheel")
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    return {entry.filename: entry.CRC for entry in zipfile.ZipFile(wheel).infolist()}


def test_the_sdist_has_what_its_tests_and_its_readers_need(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt", "action.yml", ".ci/run",
        "docs/architecture.md", "docs/ci.md", "tests/hosts/plain.yaml",
    }  # fmt: skip

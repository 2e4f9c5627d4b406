"""[tool.ddpdoctor] in pyproject.toml."""

from pathlib import Path

import pytest

from ddpdoctor.cli import run
from ddpdoctor.cli.config import Config, read_config
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.request import request_of
from ddpdoctor.model import Level

ALL = """
[tool.ddpdoctor]
select = ["DD1", "data"]
ignore = ["DD103"]
nproc = 3
batches = 5
fail-on = "fail"

[tool.ddpdoctor.per-file-ignores]
"legacy/*.py" = ["DD104"]
"""


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    below = folder / "src" / "deep"
    below.mkdir(parents=True)
    return below


def test_every_key_is_read_from_the_nearest_file_that_has_the_table(tmp_path: Path) -> None:
    below = project(tmp_path, ALL)
    (below / "pyproject.toml").write_text("[tool.ruff]\n")
    assert read_config(below) == Config(
        tmp_path,
        {"select": ["DD1", "data"], "ignore": ["DD103"], "nproc": 3, "batches": 5, "fail_on": Level.FAIL},
        {"legacy/*.py": ["DD104"]},
    )


def test_without_a_file_nothing_is_asked_for(tmp_path: Path) -> None:
    assert read_config(tmp_path) == Config(tmp_path)


def test_the_command_line_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, ALL))
    Path("train.py").write_text("")
    asked = request_of(CheckOptions(words=["train.py"]))
    assert (asked.options.select, asked.options.ignore) == (["DD1", "data"], ["DD103"])
    assert (asked.host.launch.nproc, asked.fail_on) == (3, Level.FAIL)
    assert asked.job is not None
    assert asked.job.recorder.batches == 5
    given = CheckOptions(
        words=["train.py"], nproc=2, batches=9, fail_on=Level.WARN, select=["run"], ignore=["DD2"]
    )
    asked = request_of(given)
    assert (asked.options.select, asked.options.ignore) == (["run"], ["DD2"])
    assert (asked.host.launch.nproc, asked.fail_on) == (2, Level.WARN)
    assert asked.job is not None
    assert asked.job.recorder.batches == 9


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.ddpdoctor]\nselekt = []", "the unknown key 'selekt'"),
        ('[tool.ddpdoctor]\nselect = "DD1"', "select in [tool.ddpdoctor] is not a list of codes"),
        ('[tool.ddpdoctor]\nignore = ["DD999"]', "unknown check 'DD999'"),
        ("[tool.ddpdoctor]\nnproc = 0", "nproc in [tool.ddpdoctor] is 0, not a number from 1 on"),
        ("[tool.ddpdoctor]\nbatches = true", "batches in [tool.ddpdoctor] is True"),
        ('[tool.ddpdoctor]\nfail-on = "info"', "fail-on in [tool.ddpdoctor] is 'info'"),
        ("[tool.ddpdoctor]\nper-file-ignores = 3", "per-file-ignores in [tool.ddpdoctor] is not a table"),
        ("[tool]\nddpdoctor = 3", "[tool.ddpdoctor] is not a table"),
        ("[tool.ddpdoctor\n", "is not TOML"),
    ],
)
def test_what_is_not_understood_is_one_line(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project(tmp_path, text))
    assert run(["check"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1

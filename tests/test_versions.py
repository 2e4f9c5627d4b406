"""The script that runs tests with other Pythons and torches takes those that pyproject.toml claims."""

import re

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

import pytest

from tests import versions

PROJECT = tomllib.loads((versions.ROOT / "pyproject.toml").read_text())["project"]


def test_the_oldest_and_the_newest_python_and_the_oldest_torch_are_run():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    pythons = {pair.partition(":")[0] for pair in versions.PAIRS}
    assert {named[0], named[-1]} <= pythons <= set(named)
    (torch,) = (one.partition(">=")[2] for one in PROJECT["dependencies"] if one.startswith("torch"))
    assert versions.PAIRS[0].startswith(f"{named[0]}:{torch}")


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(versions.Missing, match=r"no python2\.9 on PATH"):
        versions.interpreter("2.9")

import json
import subprocess
import sys

import pytest

from ddpdoctor import registry
from ddpdoctor.cli import checks
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.model import Family
from tests.support.command import environment


def test_the_list_has_every_check():
    listed = checks.list_checks("terminal")
    assert all(f"  {check.code}  {check.name} " in listed for check in registry.all_checks())
    assert len(listed.splitlines()) == len(registry.all_checks()) + len(Family)  # in a pipe, a line for each


def test_the_list_for_programs():
    first = json.loads(checks.list_checks("json"))[0]
    assert set(first) == {"code", "name", "family", "sources", "title", "summary"}
    assert set(first["sources"]) <= {"host", "group", "run", "log", "code"}


@pytest.mark.parametrize("wanted", ["DD002", "dd002", "port-in-use"])
def test_a_page_is_found_by_code_and_by_name(wanted):
    page = checks.explain(wanted)
    assert page.startswith("DD002 port-in-use\nfamily launch; looks at this host")
    assert "\nFix:\n    On one node, let torchrun choose a free port" in page
    assert "\n        torchrun --nproc-per-node 4 train.py     # port 29500, already taken\n" in page


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("prt-in-use", "no check has the code or name 'prt-in-use'; did you mean DD002 (port-in-use)?"),
        (
            "DD70",
            "no check has the code or name 'DD70'; did you mean DD701 (nccl-interface), DD702 (gloo-interface), "
            "DD703 (ib-gid-index) and 6 more?",
        ),
        ("DD999", "no check has the code or name 'DD999'; `ddpdoctor checks` lists them all"),
        ("\x1b", r"no check has the code or name '\x1b'; `ddpdoctor checks` lists them all"),
    ],
)
def test_an_unknown_check_is_a_usage_error_with_the_nearest(wanted, message):
    with pytest.raises(UsageError) as error:
        checks.explain(wanted)
    assert str(error.value) == message


@pytest.mark.slow
def test_a_page_is_whole_where_python_drops_docstrings() -> None:
    command = ["-m", "ddpdoctor", "explain", "DD002"]
    pages_said = [
        subprocess.run(
            [sys.executable, *optimize, *command], capture_output=True, env=environment({}), check=True
        )
        for optimize in ([], ["-OO"])
    ]
    assert pages_said[0].stdout == pages_said[1].stdout != b""

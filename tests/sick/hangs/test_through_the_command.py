"""A script through the whole command, as that of docs/worked-example.md: found, ended, and nothing left of the job."""

import time
from pathlib import Path

from tests.sick.test_through_the_command import check, findings
from tests.support.expectations import expectations
from tests.support.processes import carrying

FOLDER = Path(__file__).parent
SECONDS = 200.0
"""Generous: two cores may be running much else. The process groups would wait for 1,800."""


def test_who_is_to_blame_is_found_under_torchrun(tmp_path: Path) -> None:
    script, began = FOLDER / "dd307_lock_held_at_the_fork.py", time.monotonic()
    done = check(tmp_path, str(script))
    expected = {(one.code, one.line, one.ranks) for one in expectations(script, 2)}
    found = {(one["code"], (one["where"] or {}).get("line"), tuple(one["ranks"])) for one in findings(done)}
    assert found == expected, done.out + done.err
    assert done.status == 1
    assert time.monotonic() - began < SECONDS
    assert carrying(str(tmp_path), "TMPDIR") == []

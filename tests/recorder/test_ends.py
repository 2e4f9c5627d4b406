"""What the recorder writes down of how a process ends."""

import pytest

from ddpdoctor.recorder.patches.ends import exit_status


@pytest.mark.parametrize(
    ("given", "seen"),
    [(None, 0), (0, 0), (False, 0), (True, 1), (3, 3), (-1, 255), (256, 0), ("no data", 1), ("", 1)],
)
def test_the_status_that_the_parent_sees(given, seen):
    assert exit_status(given) == seen

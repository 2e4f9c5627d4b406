"""Where a line stands that runs while an exception is under way."""

import pytest

from ddpdoctor.trace.handled_exceptions import Way, way_of

SCRIPT = """\
try:
    train()
except OSError:
    train()
else:
    save()
finally:
    barrier()
with group() as rank, other(
    rank
):
    train()
try:
    with group():
        train()
    again()
except OSError:
    barrier()
barrier()
"""


@pytest.mark.parametrize(
    ("line", "tried", "way"),
    [
        (8, 2, Way.GOES_ON),
        (8, 4, Way.GOES_ON),
        (8, 6, Way.GOES_ON),
        (4, 2, Way.MAY_END),
        (4, 6, None),
        (9, 12, Way.GOES_ON),
        (10, 12, Way.GOES_ON),
        (14, 15, Way.GOES_ON),
        (18, 16, Way.MAY_END),
        (18, 14, Way.MAY_END),
        (19, 14, None),
        (12, 12, None),
    ],
)
def test_what_becomes_of_an_exception(tmp_path, line, tried, way):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    assert way_of(str(file), line, tried) is way


@pytest.mark.parametrize("text", [None, "def (", "x = 1\0"])
def test_a_file_that_does_not_tell(tmp_path, text):
    file = tmp_path / "train.py"
    if text is not None:
        file.write_text(text)
    assert way_of(str(file), 1, 1) is None

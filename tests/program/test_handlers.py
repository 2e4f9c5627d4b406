"""Where a line stands that runs while an exception is under way."""

import pytest

from ddpdoctor.model import Where
from ddpdoctor.program.handlers import Way, is_caught, way_of

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


@pytest.mark.parametrize(
    ("head", "clause", "caught"),
    [
        ("try", "except OSError as error:\n    if error.errno != 17:\n        raise", True),
        ("try", "except (KeyError, FileExistsError):\n    pass", True),
        ("try", "except:\n    pass", True),
        ("try", "except KeyError:\n    pass", False),
        ("try", "except OSError:\n    raise", False),
        ("try", "finally:\n    pass", False),
        ("with contextlib.suppress(FileExistsError)", "", True),
        ("with lock, suppress(KeyError, OSError)", "", True),
        ("with suppress(KeyError)", "", False),
        ("with lock(OSError)", "", False),
    ],
)
def test_an_exception_is_caught(tmp_path, head, clause, caught):
    file = tmp_path / "script.py"
    head = f"import contextlib\nfrom contextlib import suppress\n{head}"
    file.write_text(f"{head}:\n    make()\n{clause}\nmake()\n")
    names = ("OSError", "FileExistsError")
    assert is_caught(Where(str(file), 4, "<module>"), names) is caught
    assert not is_caught(Where(str(file), len(file.read_text().splitlines()), "<module>"), names)

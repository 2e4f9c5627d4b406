"""A rank that does nothing but look for something: what, until when, and who has it."""

import textwrap
from pathlib import Path

import pytest

from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.model import Where
from ddpdoctor.program import Program
from ddpdoctor.program.polls import Poll, poll_at
from ddpdoctor.recorder.events.files import FileEvent, PathAsked
from ddpdoctor.trace.record import Record
from tests.support.diagnosis import Diagnosis, diagnosis_of
from tests.support.hangs import collective, hung, process, script, snapshot
from tests.support.recordings import recording, replace

POLLS = {
    "a lock that is to go": ("while os.path.exists(LOCK):\n    time.sleep(1)", "os.path.exists(LOCK)", False),
    "a file that is to come": ("while not path.exists():\n    time.sleep(1)", "path.exists()", True),
    "with a word of it": (
        "while True:\n    if os.path.exists(p):\n        break\n    print('waits')\n    time.sleep(1)",
        "os.path.exists(p)",
        True,
    ),
    "a lock that is taken": (
        "while True:\n    try:\n        os.open(LOCK, os.O_CREAT | os.O_EXCL)\n        break\n"
        "    except FileExistsError:\n        time.sleep(1)",
        "os.open(LOCK, os.O_CREAT | os.O_EXCL)",
        None,
    ),
    "a port": (
        "while True:\n    try:\n        socket.create_connection((host, 29600))\n        break\n"
        "    except OSError:\n        time.sleep(1)",
        "socket.create_connection((host, 29600))",
        None,
    ),
    "in turns that are counted": (
        "for tries in itertools.count():\n    if os.path.exists(p):\n        break\n    time.sleep(1)",
        "os.path.exists(p)",
        True,
    ),
    "without a sleep": ("while not os.path.exists(p):\n    pass", "os.path.exists(p)", True),
    "a queue": ("while results.empty():\n    sleep(0.1)", "results.empty()", False),
    "until a time": (
        "while not flag.is_set() and time.time() < end:\n    time.sleep(1)",
        "not flag.is_set() and time.time() < end",
        False,
    ),
}
WORKS = {
    "over items, with a way out": "for item in items:\n    if item > 3:\n        break\n    time.sleep(1)",
    "over items": "for item in items:\n    time.sleep(1)",
    "training": "while step < 100:\n    model(batch).backward()\n    time.sleep(1)",
    "work between sleeps": "while todo:\n    convert(todo.pop())\n    time.sleep(1)",
    "a plain sleep": "time.sleep(1)",
    "counting": "while step < 10**9:\n    step += 1",
}
HEAD = "import itertools, os, socket, time\nfrom time import sleep\nLOCK = 'x.lock'\n"


def write(folder: Path, text: str) -> tuple[str, int]:
    """The script, and the line at which it sleeps, or its last."""
    file = folder / "train.py"
    file.write_text(
        f"{HEAD}def wait(path, p, host, results, flag, end, items, batch):\n{textwrap.indent(text, '    ')}\n"
    )
    lines = file.read_text().splitlines()
    sleeps = [number for number, line in enumerate(lines, 1) if "sleep(" in line]
    return str(file), sleeps[-1] if sleeps else len(lines)


def polled(folder: Path, text: str) -> Poll | None:
    file, line = write(folder, text)
    return poll_at(Where(file, line), Program(file))


@pytest.mark.parametrize(("text", "look", "until"), POLLS.values(), ids=POLLS)
def test_what_a_rank_looks_at(text: str, look: str, until: bool | None, tmp_path: Path) -> None:
    poll = polled(tmp_path, text)
    assert poll is not None
    assert (poll.look, poll.until) == (look, until)


@pytest.mark.parametrize("text", WORKS.values(), ids=WORKS)
def test_who_works_does_not_look(text: str, tmp_path: Path) -> None:
    assert polled(tmp_path, text) is None


GIVES_UP = {
    "while not path.exists():\n    time.sleep(1)": False,
    "while not path.exists() and time.time() < end:\n    time.sleep(1)": True,
    "for _ in range(100):\n    if path.exists():\n        break\n    time.sleep(1)": True,
    "for _ in itertools.count():\n    if path.exists():\n        break\n    time.sleep(1)": False,
    "tries = 0\nwhile not path.exists():\n    tries += 1\n    if tries > 100:\n        raise TimeoutError\n"
    "    time.sleep(1)": True,
    "tries = 0\nwhile not path.exists():\n    tries += 1\n    if tries % 10 == 0:\n        print(tries)\n"
    "    time.sleep(1)": False,
}


@pytest.mark.parametrize("text", GIVES_UP)
def test_who_gives_up_some_day(text: str, tmp_path: Path) -> None:
    poll = polled(tmp_path, text)
    assert poll is not None
    assert poll.gives_up is GIVES_UP[text]


def judged(folder: Path, text: str, *files: tuple[int, FileEvent | PathAsked]) -> Diagnosis:
    """Rank 1 is in the loop, and rank 0 in a barrier."""
    file, line = write(folder, text)
    events = {rank: [event for by, event in files if by == rank] for rank in range(2)}
    own = {
        rank: replace(recording(rank, exit=None, groups=()), record=Record.made(*events[rank]))
        for rank in range(2)
    }
    sleeping = process(1, (script(90), script(line, "wait", file)), doing=Doing.SLEEPS)
    return diagnosis_of(hung(snapshot({0: collective("barrier", 60), 1: sleeping}), own))


def lock(folder: Path, action: str, time: float) -> FileEvent:
    return FileEvent(action, "/jobs/x.lock", time, Where("train.py", 20))


def asked(folder: Path, line: int = 5) -> PathAsked:
    return PathAsked("/jobs/x.lock", 3.0, Where(str(folder / "train.py"), line))


def test_the_rank_that_has_the_file_is_named(tmp_path: Path) -> None:
    text = POLLS["a lock that is to go"][0]
    found = judged(tmp_path, text, (0, lock(tmp_path, "write", 1.0)), (1, asked(tmp_path)))
    assert found.code == "DD307"
    assert found.headline == (
        "rank 1 waits for os.path.exists(LOCK) to become false, while rank 0 waits in barrier at train.py:60"
    )
    assert "Rank 0 made '/jobs/x.lock' at train.py:20, and has not removed it." in found.why
    assert "timeout changes nothing" in found.why
    assert "timedelta(hours" not in found.fix


def test_a_lock_from_an_earlier_run(tmp_path: Path) -> None:
    found = judged(tmp_path, POLLS["a lock that is to go"][0], (1, asked(tmp_path)))
    assert "No rank of this run made '/jobs/x.lock': it may be left from an earlier run." in found.why


def test_a_file_that_nobody_makes(tmp_path: Path) -> None:
    found = judged(tmp_path, POLLS["a file that is to come"][0], (1, asked(tmp_path)))
    assert "to become true" in found.headline
    assert "No rank of this run made '/jobs/x.lock'" in found.why


def test_work_is_no_polling(tmp_path: Path) -> None:
    assert judged(tmp_path, WORKS["work between sleeps"]).code == "DD306"

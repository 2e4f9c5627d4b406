import io
import os
import re
import subprocess
import sys

import pytest

from ddpdoctor.progress import Progress


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), write_through=True)

    def isatty(self) -> bool:
        return True

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode()


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_elsewhere_each_stage_is_one_plain_line():
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        progress.stage("examining this host")
        progress.stage("starting 4 ranks")
        progress.stage("starting 4 ranks")
    assert stream.getvalue() == "examining this host\nstarting 4 ranks\n"


def test_a_dumb_terminal_gets_plain_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with Progress(stream=terminal) as progress:
        progress.stage("examining this host")
    assert terminal.getvalue() == "examining this host\n"


def test_quiet_says_nothing(terminal):
    with Progress(quiet=True, stream=terminal) as progress:
        progress.stage("examining this host")
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_a_terminal_is_left_clean(terminal, error):
    try:
        with Progress(stream=terminal) as progress:
            progress.stage("starting [4] ranks")
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    written = terminal.getvalue()
    assert "starting [4] ranks" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor stays hidden"
    assert written.rstrip().endswith("\x1b[2K"), "the live line was not erased"


def test_rich_is_imported_only_for_a_terminal():
    program = (
        "import sys; from ddpdoctor.progress import Progress\n"
        "with Progress() as p: p.stage('x')\n"
        "sys.exit('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "x\n")


@pytest.mark.parametrize("cut_at_end", [True, False])
def test_the_time_is_shown_beside_a_long_text(cut_at_end, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with Progress(stream=terminal) as progress:
        progress.stage("starting " + "many " * 40 + "ranks", cut_at_end=cut_at_end)
    first = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.getvalue())
    assert "0:00:00 starting many" in first
    assert ("many ..." in first) is cut_at_end
    assert all(len(line) <= 60 for line in first.split("\r"))


def screen(written: str) -> list[str]:
    """What is left to be read."""
    rows, row = [""], 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\n|\r|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif part == "\x1b[1A":
            row -= 1
        elif part in ("\r", "\x1b[2K"):
            rows[row] = ""
        elif not part.startswith("\x1b"):
            rows[row] += part
    return rows


def test_what_a_job_prints_takes_the_place_of_the_live_line(terminal):
    with Progress(stream=terminal) as progress:
        out = progress.sink(terminal)
        progress.stage("running train.py: training step 1")
        out.write(b"epoch 0\n")
        progress.stage("running train.py: training step 2")
        out.write(b"epoch 1\n")
    assert [row for row in screen(terminal.getvalue()) if row] == ["epoch 0", "epoch 1"]


def test_a_pipe_may_end_on_the_terminal_and_a_file_does_not(terminal, tmp_path):
    read, write = os.pipe()
    with (
        Progress(stream=terminal) as progress,
        os.fdopen(read, "rb") as reader,
        os.fdopen(write, "w") as pipe,
        (tmp_path / "log").open("w") as file,
    ):
        progress.stage("running train.py: training step 1")
        before = len(terminal.getvalue())
        progress.sink(file).write(b"epoch 0\n")
        assert not [row for row in screen(terminal.getvalue()[before:]) if row]
        progress.sink(pipe).write(b"epoch 0\n")
        assert reader.readline() == b"epoch 0\n"
        assert not [row for row in screen(terminal.getvalue()) if row]


def test_the_live_line_stays_away_behind_half_a_line(terminal):
    with Progress(stream=terminal) as progress:
        out = progress.sink(terminal)
        out.write(b"\r10 %")
        progress.stage("running train.py: training step 1")
        out.write(b"\r20 %")
        assert terminal.getvalue() == "\r10 %\r20 %"
        out.write(b"\n")
        progress.stage("running train.py: training step 1")
        assert "0:00:00" in terminal.getvalue()

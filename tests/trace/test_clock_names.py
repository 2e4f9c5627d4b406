"""Folders that ranks name by the time, from what a run left behind and the text of its script."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import FileEvent, LogWriter
from ddpdoctor.trace.files import named_by_clocks
from ddpdoctor.trace.record import Record
from tests.support.recordings import recording, replace

HEAD = """\
import os, time, uuid
from datetime import datetime as now_of
from pathlib import Path
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter
rank = dist.get_rank()
def make(base, tag):
    os.makedirs(f"{base}/{tag}")
def agreed():
    name = [time.strftime("%H%M%S")]
    dist.broadcast_object_list(name, 0)
    return name[0]
"""


def named(folder: Path, text: str, names: tuple[str, str], kind: str = "mkdir") -> list[Where]:
    file = folder / "train.py"
    file.write_text(HEAD + text)
    line = HEAD.count("\n") + 1 if "make(" not in text else 8
    at = Where(str(file), line, "f")
    made = {}
    for rank, name in enumerate(names):
        path = f"/jobs/log/{name}"
        made[rank] = replace(recording(rank), script=str(file))
        if kind == "mkdir":
            made[rank] = replace(made[rank], files=(FileEvent("mkdir", path, 1.0, at),))
        else:
            made[rank] = replace(made[rank], record=Record.made(LogWriter(kind, path, at, 1.0)))
    assert all(it.at == at for it in named_by_clocks(made))
    return [it.at for it in named_by_clocks(made)]


@pytest.mark.parametrize(
    ("text", "by_clocks"),
    [
        ("os.makedirs('log/' + time.strftime('%Y%m%d-%H%M%S'))", True),
        ("Path('log', str(int(time.time()))).mkdir(parents=True)", True),
        ("os.mkdir(f'log/{now_of.now():%H%M%S}')", True),
        ("make('log', time.time_ns())", True),
        ("os.makedirs(f'log/{time.time()}-rank{rank}')", False),
        ("os.makedirs(f'log/{time.time()}-{uuid.uuid4()}')", False),
        ("os.makedirs(f'log/{time.time()}-{os.getpid()}')", False),
        ("make('log', agreed())", False),
        ("make('log', rank)", False),
        ("os.makedirs(f'log/{clock}')", False),
    ],
)
def test_a_folder_that_each_rank_makes(tmp_path: Path, text: str, by_clocks: bool) -> None:
    assert bool(named(tmp_path, text, ("20261123-100550", "20261123-100551"))) is by_clocks


def test_a_folder_that_has_one_name_happened_to_be_named_at_one_time(tmp_path: Path) -> None:
    assert not named(tmp_path, "os.makedirs(f'log/{time.time()}')", ("100550", "100550"))


@pytest.mark.parametrize(
    ("text", "by_clocks"),
    [
        ("SummaryWriter()", True),
        ("SummaryWriter(comment='_first')", True),
        ("SummaryWriter(comment=f'_{rank}')", False),
        ("SummaryWriter(f'log/{rank}')", False),
        ("SummaryWriter(f'log/{time.time()}')", True),
    ],
)
def test_a_log_that_each_rank_opens(tmp_path: Path, text: str, by_clocks: bool) -> None:
    names = ("Nov23_10-05-50_host", "Nov23_10-05-51_host")
    assert bool(named(tmp_path, text, names, "tensorboard")) is by_clocks

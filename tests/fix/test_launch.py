"""Patches of what a script takes from its launcher."""

import argparse

import pytest

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patches
from ddpdoctor.trace import Trace
from tests.fix.cases import finding_at
from tests.support.recordings import recording, trace


def patched(patch, text, folder, recorded=None):
    """A script after a patch; its finding is at the line that ends in ``# here``, or nowhere."""
    (folder / "train.py").write_text(text)
    project = Project(folder)
    patches()[patch].apply(Case(finding_at(text), recorded or Trace(()), project))
    ((_, after),) = project.after(project.take()).items()
    return after.decode()


def ran(folder):
    recordings = {0: recording(0, script=str(folder / "train.py"))}
    return trace(recordings)


@pytest.mark.parametrize(
    ("option", "after"),
    [
        ("'--local_rank'", "'--local_rank', '--local-rank'"),
        ('"--local-rank"', '"--local-rank", "--local_rank"'),
        ('"-r", "--local_rank"', '"-r", "--local_rank", "--local-rank"'),
    ],
)
def test_a_parser_accepts_both_spellings(option, after, tmp_path):
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({}, type=int)\n"
    script = patched("local_rank_option", text.format(option), tmp_path, ran(tmp_path))
    assert script == text.format(after)
    names = {}
    exec(script, names)
    for spelling in ("--local_rank=3", "--local-rank=3"):
        assert names["parser"].parse_args([spelling]) == argparse.Namespace(local_rank=3)


@pytest.mark.parametrize("text", ["print(1)\n", "p.add_argument('--local_rank', '--local-rank')\n"])
def test_where_no_parser_takes_the_option_there_is_no_patch(text, tmp_path):
    with pytest.raises(CannotPatch, match="no parser"):
        patched("local_rank_option", text, tmp_path, ran(tmp_path))


def test_an_address_of_the_script_is_a_default_only(tmp_path):
    text = (
        "import os\nos.environ['MASTER_ADDR'] = 'localhost'\nos.environ['MASTER_PORT'] = str(port)  # here\n"
        "dist.init_process_group('nccl', rank=rank, world_size=size)\n"
    )
    assert patched("group_of_launcher", text, tmp_path) == (
        "import os\nos.environ.setdefault('MASTER_ADDR', 'localhost')\n"
        "os.environ.setdefault('MASTER_PORT', str(port))  # here\n"
        "dist.init_process_group('nccl', rank=rank, world_size=size)\n"
    )


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (
            "import torch\ndist.init_process_group('nccl')  # here\n",
            "from datetime import timedelta\n\nimport torch\n"
            "dist.init_process_group('nccl', timeout=timedelta(hours=2))  # here\n",
        ),
        (
            "import datetime\ndist.init_process_group('nccl', timeout=datetime.timedelta(minutes=5))  # here\n",
            "import datetime\ndist.init_process_group('nccl', timeout=datetime.timedelta(hours=2))  # here\n",
        ),
    ],
)
def test_the_group_gets_the_time_that_one_rank_takes(text, after, tmp_path):
    assert patched("group_timeout", text, tmp_path) == after

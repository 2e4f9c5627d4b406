"""A script that was cut short: whether its files destroy the process group is read in them."""

import dataclasses
from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import judge
from ddpdoctor.model import Source, Where
from ddpdoctor.recorder.events.process import Exit, GroupEvent
from tests.support.recordings import recorded, replace

CHECK = [check for check in registry.select(Source.RUN) if check.code == "DD310"]
SCRIPT = "import torch.distributed as dist\nfrom parts.setup import *\n\n\ndist.init_process_group('gloo')\n"


SHORTENED = Exit("shortened", 9.0)


def headlines(folder: Path, script: str, module: str = "", end: Exit | None = SHORTENED) -> list[str]:
    (folder / "parts").mkdir()
    (folder / "train.py").write_text(script)
    (folder / "parts" / "setup.py").write_text(module)
    file = str(folder / "train.py")
    made = GroupEvent("init", 0.0, Where(file, 5, "<module>"), "gloo", 0, 2)
    trace = recorded(change=lambda _, it: replace(it, script=file, groups=(made,), exit=end))
    ranks = tuple(dataclasses.replace(rank, finished=True) for rank in trace.ranks)
    (verdict,) = judge(Source.RUN, CHECK, dataclasses.replace(trace, ranks=ranks), print)
    return [finding.headline for finding in verdict.findings]


def test_no_file_of_it_destroys_the_group(tmp_path):
    script = SCRIPT + "import os.path, rich.console, torch\nfrom parts import setup\n"
    assert headlines(tmp_path, script) == ["no file of the script calls destroy_process_group"]


@pytest.mark.parametrize("name", ["cleanup", "teardown_distributed", "finalize", "n3"])
def test_the_name_of_a_function_destroys_nothing(tmp_path, name):
    script = f"{SCRIPT}import shutil\ndef {name}():\n    shutil.rmtree('x')\n{name}()\nmeter.{name}()\n"
    assert headlines(tmp_path, script) == ["no file of the script calls destroy_process_group"]


def test_of_a_process_that_left_without_a_word_as_a_forked_one_does_nothing_is_said(tmp_path):
    assert headlines(tmp_path, SCRIPT, end=None) == []


@pytest.mark.parametrize(
    ("end", "module"),
    [
        ("dist.destroy_process_group()\n", ""),
        ("leave()\n", "def leave():\n    dist.destroy_process_group()\n"),
        ("atexit.register(dist.destroy_process_group)\n", ""),
        ("import accelerate as library\nlibrary.Accelerator().end_training()\n", ""),
        ("from torch.distributed import destroy_process_group as f\nf()\n", ""),
        ("getattr(dist, 'destroy_process_group')()\n", ""),
        ("from unread_package.utils import finish\nfinish()\n", ""),
    ],
    ids=[
        "called",
        "in a module",
        "handed on",
        "by a framework",
        "under another name",
        "by its name as a string",
        "by a helper that is not read",
    ],
)
def test_it_is_or_may_be_destroyed(tmp_path, end, module):
    assert headlines(tmp_path, SCRIPT + end, module) == []


def test_a_framework_made_the_group(tmp_path):
    assert headlines(tmp_path, SCRIPT.replace("dist.init_process_group('gloo')", "Accelerator()")) == []


def test_a_module_of_the_package_that_the_script_is_in_destroys_it(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").touch()
    (package / "utils.py").write_text("def finish():\n    dist.destroy_process_group()\n")
    script = SCRIPT.replace("parts.setup import *", "package.utils import finish") + "finish()\n"
    assert headlines(package / "inner", script) == []

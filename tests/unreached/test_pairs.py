"""A bug on a line that a short run does not reach is found from the source; its right twin is left alone.

The files of ``pairs/`` hold scripts, each headed by its name. A line that ends with ``#-`` is only in the wrong one,
with ``#+`` only in the right one. The finding is at a line that is only in the wrong one, or ends with ``#!``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import judge
from ddpdoctor.model import Finding, Level, Source
from ddpdoctor.program import Program
from ddpdoctor.unreached.lines import UnreachedLines

PAIRS = Path(__file__).parent / "pairs"
HEAD = """\
import argparse, contextlib, copy, json, math, os, random, sys, time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from parts import Net, samples, shard, whole
"""


@dataclass
class Pair:
    """A script with a bug, and the same without."""

    name: str
    code: str
    files: dict[str, list[str]] = field(default_factory=dict)

    def write(self, folder: Path, *, right: bool) -> set[tuple[str, int]]:
        """One of both; the lines at which the finding may be."""
        (folder / "parts.py").write_text((PAIRS / "parts.py").read_text())
        marked = set()
        for name, texts in self.files.items():
            written = HEAD.splitlines() if texts else []
            for text in texts:
                code, _, mark = text.partition("  #")
                if not (set(mark) <= set("-+!")):
                    code, mark = text, ""
                if ("-" if right else "+") in mark:
                    continue
                written.append(code)
                if mark:
                    marked.add((name, len(written)))
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(written) + "\n")
        return marked


def read_pairs() -> Iterator[Pair]:
    for file in sorted(PAIRS.glob("*.txt")):
        lines: list[str] = []
        for text in file.read_text().splitlines():
            if text.startswith("##### "):
                *code, name = text.split()[1:]
                pair = Pair(name, code[0] if code else file.stem.upper(), {"train.py": (lines := [])})
                yield pair
            elif text.startswith("=== "):
                lines = pair.files[text.removeprefix("=== ")] = []
            else:
                lines.append(text)


ALL = list(read_pairs())


def judged(script: Path) -> list[Finding]:
    lines = UnreachedLines(Program(str(script)))
    verdicts = judge(Source.CODE, registry.select(Source.CODE), lines, pytest.fail)
    return [finding for verdict in verdicts for finding in verdict.findings]


@pytest.mark.parametrize("pair", ALL, ids=lambda pair: f"{pair.code}-{pair.name}")
def test_a_bug_on_a_line_that_is_not_reached_is_found_from_the_source(pair, tmp_path):
    marked = pair.write(tmp_path, right=False)
    found = judged(tmp_path / "train.py")
    places = [(it.code, Path(it.where.file).relative_to(tmp_path).as_posix(), it.where.line) for it in found]
    assert {(pair.code, *mark) for mark in marked} & set(places), places
    assert {it.code for it in found} == {pair.code}


@pytest.mark.parametrize("pair", ALL, ids=lambda pair: f"{pair.code}-{pair.name}")
def test_its_right_twin_is_left_alone(pair, tmp_path):
    pair.write(tmp_path, right=True)
    assert judged(tmp_path / "train.py") == []


FALLBACK = """\
import os
import torch.distributed as dist


def folder_of(handlers):
    found = None
    for handler in handlers:
        if hasattr(handler, "baseFilename"):
            found = handler.baseFilename
    if CONDITION:
        dist.barrier()
    return found


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    folder_of(handlers_of_the_log())
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("condition", "level"),
    [("found is None", Level.INFO), ("os.environ.get('LATE')", Level.WARN), ("True", Level.WARN)],
)
def test_a_call_that_may_never_be_made_is_information(condition, level, tmp_path):
    (tmp_path / "train.py").write_text(FALLBACK.replace("CONDITION", condition))
    (found,) = judged(tmp_path / "train.py")
    assert (found.code, found.level) == ("DD303", level)
    said = [it.text for it in found.evidence]
    assert any(condition in it for it in said) is (level is Level.INFO), said


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddpdoctor", "check", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


def pair_named(name: str) -> Pair:
    return next(it for it in ALL if it.name == name)


def test_a_script_is_judged_without_a_run(tmp_path):
    pair = pair_named("patience_in_an_object")
    pair.write(tmp_path, right=False)
    done = check(tmp_path, "--no-run", "train.py")
    assert done.returncode == 1, done.stderr
    assert "warn[DD308]" in done.stdout
    assert "begins with torch.utils.data.DataLoader" in done.stdout
    assert done.stdout.lower().count("nothing was run") == 1
    github = check(tmp_path, "--no-run", "--format", "github", "train.py").stdout
    assert "::warning file=train.py,line=" in github
    sarif = json.loads(check(tmp_path, "--no-run", "--format", "sarif", "train.py").stdout)
    assert [it["ruleId"] for it in sarif["runs"][0]["results"]] == ["DD308"]
    assert check(tmp_path, "--no-run", "--ignore", "DD308", "train.py").returncode == 0


def test_several_scripts_are_judged_without_a_run(tmp_path):
    for name, right in (("first_of_the_window", False), ("read_at_once", True)):
        (tmp_path / name).mkdir()
        pair_named(name).write(tmp_path / name, right=right)
    done = check(
        tmp_path, "--no-run", "--format", "json", "first_of_the_window/train.py", "read_at_once/train.py"
    )
    assert [it["code"] for it in json.loads(done.stdout)["findings"]] == ["DD202"]


def test_what_cannot_be_judged_without_a_run_is_refused(tmp_path):
    assert "--no-run requires a script" in check(tmp_path, "--no-run").stderr
    assert "does not exist" in check(tmp_path, "--no-run", "absent.py").stderr


def test_no_more_is_imported_than_source_needs(tmp_path):
    """For editors: each tenth of a second counts."""
    (tmp_path / "train.py").write_text("import torch\n")
    code = """if True:
        import sys
        from ddpdoctor.cli import run
        run(["check", "--no-run", "train.py"])
        names = ("job.run", "group.group_run", "fix.propose", "checks.data.set_epoch_missing", "figures")
        print("imported:", *(it for it in names if f"ddpdoctor.{it}" in sys.modules))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported:"


def test_every_check_that_judges_source_is_asked():
    judging = [it for it in registry.all_checks() if Source.CODE in it.sources()]
    assert [*registry.select(Source.CODE)] == judging


RUN = (
    "mean_for_a_report_of_one_rank",
    "read_at_once",
    "saved_by_all_at_the_end",
    "prototypes_from_its_batch",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_run_judges_the_lines_that_it_did_not_reach(name, tmp_path):
    pair = pair_named(name)
    pair.write(tmp_path, right=False)
    done = check(tmp_path, "--nproc", "2", "--select", f"{pair.code},run", "--format", "json", "train.py")
    found = [it for it in json.loads(done.stdout)["findings"] if it["code"] == pair.code]
    assert found, done.stderr
    assert "No rank came to this line" in found[0]["evidence"][0]["text"]
    pair.write(tmp_path, right=True)
    done = check(tmp_path, "--nproc", "2", "--select", f"{pair.code},run", "--format", "json", "train.py")
    assert [it for it in json.loads(done.stdout)["findings"] if it["code"] == pair.code] == []


BESIDE = """\
def fit(net, optimizer, loader, debug):
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        if debug:
            continue
        if loss.item() > 50:
            print("left out")
            continue
        optimizer.step()


dist.init_process_group("gloo")
model = DDP(Net())
fit(model, torch.optim.SGD(model.parameters(), 0.1), shard(), False)
"""


@pytest.mark.parametrize(("missing", "found"), [({16, 17}, {"DD225"}), ({14}, set()), (set(), set())])
def test_a_step_that_all_ranks_ran_is_judged_by_the_branch_that_none_took(missing, found, tmp_path):
    script = tmp_path / "train.py"
    (tmp_path / "parts.py").write_text((PAIRS / "parts.py").read_text())
    script.write_text(HEAD + BESIDE)
    lines = UnreachedLines(Program(str(script)), lambda where: where.line not in missing, ran=True)
    verdicts = judge(Source.CODE, registry.select(Source.CODE), lines, pytest.fail)
    assert {it.code for verdict in verdicts for it in verdict.findings} == found

"""What a cut may have caused is not reported before a run without cuts shows it."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ddpdoctor.cli.examination import as_information, may_come_from_cuts
from ddpdoctor.judge import Verdict
from ddpdoctor.model import Finding, Level, Source
from ddpdoctor.registry import Check, all_checks
from ddpdoctor.trace import RankTrace, Shortened, Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.recording import Recording
from tests.support.command import Done, apart, ddpdoctor, python

CUT = Shortened(8, 1)


class Finds(Check):
    """A check with one finding."""

    code, name, family, title = "DD999", "finds", all_checks()[0].family, "it finds"
    level = Level.WARN

    def examine_run(self, trace: object) -> Sequence[Finding]:
        return [Finding("DD999", self.level, "found", "why", "fix")]


class Remarks(Finds):
    """A check with one remark."""

    level = Level.INFO


def trace(*ended: str, exit_code: int = 0, shortened: Shortened | None = CUT) -> Trace:
    """A job of ranks whose only pass ended so."""
    passes = [Pass(0, 0, None, 0.0, 1.0, ended=how) for how in ended]
    ranks = [
        RankTrace(number, recording=Recording(passes=(one,)), exit_code=exit_code, finished=not exit_code)
        for number, one in enumerate(passes)
    ]
    return Trace(tuple(ranks), shortened=shortened)


def test_a_failure_after_a_cut_may_come_from_it() -> None:
    assert may_come_from_cuts(trace("shortened", "shortened", exit_code=1), [])
    assert not may_come_from_cuts(trace("exhausted", "exhausted", exit_code=1, shortened=None), [])
    assert not may_come_from_cuts(trace("shortened", "shortened"), [Finds()])


def test_a_failure_where_only_the_end_was_cut_off_does_not() -> None:
    ended = Shortened(0, 0, steps=60)
    assert not may_come_from_cuts(trace("exhausted", "left", exit_code=1, shortened=ended), [])


def test_a_finding_may_come_from_a_cut_on_some_ranks_only() -> None:
    assert may_come_from_cuts(trace("shortened", "exhausted"), [Finds()])
    assert not may_come_from_cuts(trace("shortened", "exhausted"), [Remarks()])


def test_what_is_not_confirmed_is_information() -> None:
    (found,) = Finds().examine_run(None)
    of_run = Verdict(Finds(), Source.RUN, (found,))
    assert [one.level for one in as_information(of_run).findings] == [Level.INFO]
    of_host = replace(of_run, source=Source.HOST)
    assert as_information(of_host) is of_host


COUNTS = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(240, 6), torch.randn(240, 2))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        steps = 0
        for x, y in loader:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            steps += 1
        if steps != len(loader):
            {where_cut}
    {at_the_end}
    dist.destroy_process_group()
"""
FAILS = "raise RuntimeError(f'{steps} steps')"


def cut_after_eight_batches(folder: Path, *options: str, run: Callable[..., Done] = ddpdoctor) -> Done:
    words = (
        "check",
        "--nproc",
        "2",
        *apart(),
        "--select",
        "run",
        "--batches",
        "8",
        "--format",
        "json",
        *options,
    )
    return run(*words, "train.py", cwd=folder)


def script(folder: Path, where_cut: str, at_the_end: str = "") -> Path:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(COUNTS).format(where_cut=where_cut, at_the_end=at_the_end))
    return path


@pytest.mark.slow
def test_a_script_that_counts_its_steps_is_right_though_its_cut_run_fails(tmp_path: Path) -> None:
    script(tmp_path, FAILS)
    done = cut_after_eight_batches(tmp_path)
    assert (done.status, done.codes()) == (0, set()), done.out
    assert any("a second time without cuts" in note for note in done.report["notes"])
    assert done.report["run"]["shortened"] is None


@pytest.mark.slow
def test_what_the_second_run_shows_is_reported(tmp_path: Path) -> None:
    path = script(tmp_path, FAILS, "raise LookupError('gone')")
    done = cut_after_eight_batches(tmp_path)
    (finding,) = (one for one in done.report["findings"] if one["level"] != "info")
    line = path.read_text().splitlines().index("raise LookupError('gone')") + 1
    assert (finding["code"], finding["where"]["line"]) == ("DD304", line)


NO_TIME = """
import sys
from ddpdoctor.cli import examination, run
examination.LEAST_SECONDS = 1e9
sys.exit(run(sys.argv[1:]))
"""
"""The command where no clock of a busy machine decides whether there is time for a second run."""


@pytest.mark.slow
def test_without_time_for_a_second_run_a_failure_is_information(tmp_path: Path) -> None:
    script(tmp_path, FAILS)
    done = cut_after_eight_batches(tmp_path, run=partial(python, "-c", NO_TIME))
    assert done.codes() == set(), done.out
    assert any("not confirmed" in note for note in done.report["notes"])

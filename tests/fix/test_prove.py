"""Which patch is shown as proven: by made-up runs of the changed copy."""

from dataclasses import replace
from itertools import count

import pytest

from ddpdoctor import registry
from ddpdoctor.fix.proof import Ran
from ddpdoctor.fix.prove import Prover, total_diff
from ddpdoctor.model import Kind, Level
from ddpdoctor.trace import RankTrace, Trace
from tests.fix.cases import finding_at

TEXT = """\
for epoch in range(2):
    for x in loader:  # here
        step(x)
"""
ENDED = Trace((RankTrace(0, finished=True),))
CODE = next(check.code for check in registry.all_checks() if check.patches == ("set_epoch",))


@pytest.fixture
def finding(tmp_path):
    (tmp_path / "train.py").write_text(TEXT)
    return finding_at(TEXT, code=CODE)


def proven(finding, folder, after, **options):
    runs = []

    def run(texts):
        runs.append(texts)
        return after(texts)

    result = Prover(Ran(ENDED, (finding,)), folder, run, **options).result()
    return result, len(runs)


def test_a_patch_whose_copy_is_healthy(finding, tmp_path):
    result, runs = proven(finding, tmp_path, lambda _: Ran(ENDED, ()))
    patch = result.findings[0].patch
    assert (patch.proven, patch.outcome, runs) == (True, f"{CODE} is gone, nothing new", 1)
    assert "+    loader.sampler.set_epoch(epoch)\n" in patch.diff
    assert [(change.line, change.removed) for change in patch.changes] == [(2, 0)]
    assert total_diff(tmp_path, result.texts) == patch.diff


def moved(finding, **changes):
    return replace(finding, where=replace(finding.where, line=3), about=Kind.LINE.of("train.py:3"), **changes)


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (lambda finding: Ran(ENDED, (moved(finding),)), f"{CODE} is found again"),
        (lambda finding: Ran(ENDED, (moved(finding, code="DD998"),)), "it brings DD998"),
        (
            lambda finding: Ran(Trace((RankTrace(0, exit_code=1),), status=1), ()),
            "the changed copy does not end: rank 0 of the training run broke",
        ),
    ],
)
def test_what_is_not_proven_is_a_sketch(after, outcome, finding, tmp_path):
    result, _ = proven(finding, tmp_path, lambda _: after(finding))
    patch = result.findings[0].patch
    assert (patch.proven, patch.outcome, result.texts) == (False, outcome, {})


def test_what_was_there_before_is_not_new(finding, tmp_path):
    other = replace(finding, code="DD997", about=Kind.LINE.of("train.py:2"))
    runs = count()

    def run(_):
        next(runs)
        return Ran(ENDED, (replace(other, about=Kind.LINE.of("train.py:3")),))

    result = Prover(Ran(ENDED, (finding, other)), tmp_path, run).result()
    assert result.findings[0].patch.proven
    assert result.findings[1].patch is None


def test_information_is_no_new_finding(finding, tmp_path):
    told = replace(finding, code="DD996", level=Level.INFO)
    result, _ = proven(finding, tmp_path, lambda _: Ran(ENDED, (told,)))
    assert result.findings[0].patch.proven


def test_a_file_that_changed_since_the_run_gets_no_patch_and_a_sentence(finding, tmp_path):
    result, runs = proven(finding, tmp_path, lambda _: Ran(ENDED, ()), since=1.0)
    assert (result.findings[0].patch, runs) == (None, 0)
    assert result.refusals == (f"no patch for {CODE} at train.py:2: train.py changed since the run",)


@pytest.mark.parametrize("changes", [{"level": Level.INFO}, {"where": None}])
def test_information_and_what_has_no_line_get_no_patch(changes, finding, tmp_path):
    result, runs = proven(replace(finding, **changes), tmp_path, lambda _: Ran(ENDED, ()))
    assert (result.findings[0].patch, result.refusals, runs) == (None, (), 0)

"""Which patch is shown as verified: by made-up runs of the changed copy."""

from dataclasses import replace
from itertools import count

import pytest

from ddpdoctor import registry
from ddpdoctor.fix.patches import patch_names
from ddpdoctor.fix.verdict import Ran, judge
from ddpdoctor.fix.verify import Verifier, total_diff
from ddpdoctor.model import Kind, Level, Where
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.training import Backward
from ddpdoctor.recorder.events.updates import Optimizer, OptimizerStep
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.data import Pass
from tests.fix.cases import finding_at
from tests.support.recordings import recording, step, where
from tests.support.recordings import replace as replace_events

TEXT = """\
for epoch in range(2):
    for x in loader:  # here
        step(x)
"""
ENDED = Trace((RankTrace(0, finished=True),))
CODE = next(check.code for check in registry.all_checks() if patch_names(check.code) == ("set_epoch",))


@pytest.fixture
def finding(tmp_path):
    (tmp_path / "train.py").write_text(TEXT)
    return finding_at(TEXT, code=CODE)


def verified(finding, folder, after, **options):
    runs = []

    def run(texts):
        runs.append(texts)
        return after(texts)

    result = Verifier(Ran(ENDED, (finding,)), folder, run, **options).result()
    return result, len(runs)


def test_a_patch_whose_copy_is_healthy(finding, tmp_path):
    result, runs = verified(finding, tmp_path, lambda _: Ran(ENDED, ()))
    patch = result.findings[0].patch
    assert (patch.verified, patch.outcome, runs) == (True, f"{CODE} is gone, nothing new", 1)
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
def test_what_is_not_verified_is_a_sketch(after, outcome, finding, tmp_path):
    result, _ = verified(finding, tmp_path, lambda _: after(finding))
    patch = result.findings[0].patch
    assert (patch.verified, patch.outcome, result.texts) == (False, outcome, {})


def test_what_was_there_before_is_not_new(finding, tmp_path):
    other = replace(finding, code="DD997", about=Kind.LINE.of("train.py:2"))
    runs = count()

    def run(_):
        next(runs)
        return Ran(ENDED, (replace(other, about=Kind.LINE.of("train.py:3")),))

    result = Verifier(Ran(ENDED, (finding, other)), tmp_path, run).result()
    assert result.findings[0].patch.verified
    assert result.findings[1].patch is None


def test_information_is_no_new_finding(finding, tmp_path):
    told = replace(finding, code="DD996", level=Level.INFO)
    result, _ = verified(finding, tmp_path, lambda _: Ran(ENDED, (told,)))
    assert result.findings[0].patch.verified


def test_a_file_that_changed_since_the_run_gets_no_patch_and_a_sentence(finding, tmp_path):
    result, runs = verified(finding, tmp_path, lambda _: Ran(ENDED, ()), as_it_ran=lambda _: False)
    assert (result.findings[0].patch, runs) == (None, 0)
    assert result.findings[0].unpatched == "train.py changed since the run"


def test_what_has_no_line_gets_no_patch(finding, tmp_path):
    result, runs = verified(replace(finding, where=None), tmp_path, lambda _: Ran(ENDED, ()))
    assert (result.findings[0].patch, result.findings[0].unpatched, runs) == (
        None,
        "it is at no line of the script",
        0,
    )


def trained(*losses, finite=True, **ended):
    """A run of one rank that took gradients of these losses, by their digests."""
    steps = tuple(
        step(index, backwards=(Backward(1.0, where(20), loss=loss, finite=finite),))
        for index, loss in enumerate(losses)
    )
    return Trace((RankTrace(0, **{"finished": True, **ended}, recording=replace(recording(0), steps=steps)),))


def test_what_shows_only_once_the_ranks_train_is_no_fault_of_the_patch(finding, tmp_path):
    new = moved(finding, code="DD998")
    before = Trace((RankTrace(0, exit_code=1),), status=1)
    result = Verifier(Ran(before, (finding,)), tmp_path, lambda _: Ran(trained("a"), (new,))).result()
    patch = result.findings[0].patch
    assert (patch.verified, patch.outcome) == (True, f"{CODE} is gone; the ranks train now, with DD998")


def test_a_loss_that_is_no_longer_finite_is_not_verified(finding, tmp_path):
    before = Ran(trained("a", "b"), (finding,))
    after = Ran(trained("a", "c", finite=False), ())
    (found,) = Verifier(before, tmp_path, lambda _: after).result().findings
    assert (found.patch.verified, found.patch.outcome) == (False, "the loss of rank 0 is not finite")
    (found,) = Verifier(replace(before, trace=after.trace), tmp_path, lambda _: after).result().findings
    assert found.patch.verified


def evaluated(*drawn, samples=32):
    """A run in which the first ranks evaluate these samples of a second loader, whose dataset has so many."""
    ranks = []
    for rank, indices in enumerate((*drawn, ())):
        made = recording(rank)
        held_out = Pass(1, 0, where(60), 4.1, 4.9, None, indices, 2, 2, "exhausted", evaluation=True)
        loader = Loader(1, where(59), "TensorDataset", samples, batch_size=4)
        made = replace_events(made, loaders=(*made.loaders, loader))
        ranks.append(replace(made, passes=(*made.passes, *([held_out] if indices else []))))
    return Trace(tuple(RankTrace(rank, finished=True, recording=made) for rank, made in enumerate(ranks)))


def test_an_evaluation_that_draws_fewer_samples_is_not_verified(finding, tmp_path):
    before = Ran(evaluated(tuple(range(32))), (finding,))
    after = Ran(evaluated(tuple(range(0, 32, 2))), ())
    (found,) = Verifier(before, tmp_path, lambda _: after).result().findings
    outcome = "16 samples of an evaluation are no longer drawn"
    assert (found.patch.verified, found.patch.outcome) == (False, outcome)
    (found,) = Verifier(before, tmp_path, lambda _: replace(before, findings=())).result().findings
    assert found.patch.verified


def test_ranks_that_hold_out_the_same_samples_from_now_on_do_not(finding, tmp_path):
    before = Ran(evaluated(tuple(range(16)), tuple(range(40, 56)), samples=16), (finding,))
    after = Ran(evaluated(tuple(range(16)), tuple(range(16)), samples=16), ())
    (found,) = Verifier(before, tmp_path, lambda _: after).result().findings
    assert found.patch.verified


def of_ranks(*changes, size=2, lr=0.1):
    """A run whose ranks save these files in a group of this size, with this learning rate."""
    ranks = []
    for rank, paths in enumerate(changes):
        update = OptimizerStep(0, 0.9, where(50), hyperparameters=({"lr": lr},))
        saves = tuple(Save(path, where(80), 50.0, 50.1, id=number) for number, path in enumerate(paths))
        made = recording(rank, size, steps=0, saves=saves)
        ranks.append(replace(made, steps=(step(0, optimizer_steps=(update,)),), step_count=1))
    return Trace(tuple(RankTrace(rank, finished=True, recording=made) for rank, made in enumerate(ranks)))


def updating(*keys):
    """A run of one rank whose optimizer updates these parameters."""
    made = recording(0, steps=1, optimizers=(Optimizer(0, "SGD", keys),))
    return Trace((RankTrace(0, finished=True, recording=made),))


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (["0.bias", "0.weight", "2.weight"], ""),
        (["0.bias (wrapper 1)", "0.weight (wrapper 1)", "2.weight (wrapper 1)"], ""),
        (["0.bias", "0.weight"], "rank 0 of the changed copy no longer updates Net.2.weight"),
        (["bias", "weight"], "rank 0 of the changed copy updates 2 of 3 parameters"),
    ],
)
def test_a_wrap_renames_parameters_that_must_all_be_updated(after, outcome, finding, tmp_path):
    before = Ran(updating("Net.0.bias", "Net.0.weight", "Net.2.weight"), (finding,))
    (found,) = Verifier(before, tmp_path, lambda _: Ran(updating(*after), ())).result().findings
    patch = found.patch
    assert (patch.verified, patch.outcome) == (not outcome, outcome or f"{CODE} is gone, nothing new")


EACH = of_ranks(["/out/0.pt"], ["/out/1.pt"])
SHARED = of_ranks(["/out/last.pt"], ["/out/last.pt"])


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (EACH, of_ranks(["/out/0.pt"], []), "1.pt is no longer written"),
        (SHARED, of_ranks([], []), "last.pt is no longer written"),
        (SHARED, of_ranks(["/out/last.pt"], []), ""),
        (of_ranks(["/out/8.pt", "/out/9.pt"]), of_ranks(["/out/8.pt"]), ""),
        (of_ranks(["/out/at-1203.pt"]), of_ranks(["/out/at-1204.pt"]), ""),
        (SHARED, of_ranks(["/out/last.pt"], [], lr=0.3), "lr of rank 0 is 0.3, not 0.1, in its first update"),
        (of_ranks([], size=1), of_ranks([], size=2, lr=0.2), ""),
    ],
)
def test_a_patch_that_changes_files_or_the_learning_rate_is_refused(
    before, after, outcome, finding, tmp_path
):
    (found,) = Verifier(Ran(before, (finding,)), tmp_path, lambda _: Ran(after, ())).result().findings
    patch = found.patch
    assert (patch.verified, patch.outcome) == (not outcome, outcome or f"{CODE} is gone, nothing new")


def test_files_that_the_finding_is_about_may_go(finding, tmp_path):
    about = replace(finding, about=Kind.PATH.of("/out"))
    (found,) = (
        Verifier(Ran(EACH, (about,)), tmp_path, lambda _: Ran(of_ranks(["/out/0.pt"], []), ()))
        .result()
        .findings
    )
    assert found.patch.verified


def test_a_model_that_is_no_longer_wrapped_is_not_verified(finding, tmp_path):
    after = trained("a")
    (rank,) = after.ranks
    bare = Trace((replace(rank, recording=replace_events(rank.recording, wrappers=())),))
    result = Verifier(Ran(after, (finding,)), tmp_path, lambda _: Ran(bare, ())).result()
    patch = result.findings[0].patch
    assert (patch.verified, patch.outcome) == (False, "rank 0 of the changed copy wraps no model")


@pytest.mark.parametrize("is_there", [False, True])
def test_information_is_patched_where_its_code_is_asked_for(is_there, finding, tmp_path):
    told = replace(finding, level=Level.INFO)
    result, _ = verified(
        told, tmp_path, lambda _: Ran(ENDED, (moved(told),) if is_there else ()), asked=[CODE]
    )
    assert result.findings[0].patch.verified is not is_there


def test_information_alone_gets_no_patch(finding, tmp_path):
    result, runs = verified(replace(finding, level=Level.INFO), tmp_path, lambda _: Ran(ENDED, ()))
    assert (result.findings[0].patch, result.findings[0].unpatched, runs) == (None, None, 0)


def code_of(patch):
    """A check that has this patch first."""
    return next(check.code for check in registry.all_checks() if patch_names(check.code)[:1] == (patch,))


TWO = f"import torch.distributed as dist\ndist.init_process_group('gloo')\n{TEXT}"


def two_findings(folder):
    (folder / "train.py").write_text(TWO)
    first = replace(finding_at(TWO, code=CODE), about=Kind.LOADER.of("train.py:9"))
    group = replace(first, code=code_of("destroy_process_group"), where=Where("train.py", 2), about=())
    return first, group


def test_patches_that_work_together_take_one_run(tmp_path):
    first, group = two_findings(tmp_path)
    runs = []

    def run(texts):
        runs.append(texts)
        return Ran(ENDED, ())

    result = Verifier(Ran(ENDED, (first, group)), tmp_path, run).result()
    assert [finding.patch.verified for finding in result.findings] == [True, True]
    assert len(runs) == 1
    assert "set_epoch" not in result.findings[1].patch.diff
    ((_, raw),) = result.texts.items()
    assert raw.decode().count("set_epoch") == raw.decode().count("destroy_process_group") == 1


def test_patches_that_do_not_are_tried_one_by_one(tmp_path):
    first, group = two_findings(tmp_path)

    def run(texts):
        ((_, raw),) = texts.items()
        breaks = b"destroy_process_group" in raw
        left = [] if b"set_epoch" in raw else [first]
        return Ran(
            ENDED, (*left, *([replace(first, code="DD995", about=Kind.LINE.of("x"))] if breaks else [group]))
        )

    result = Verifier(Ran(ENDED, (first, group)), tmp_path, run).result()
    assert [finding.patch.verified for finding in result.findings] == [True, False]
    assert result.findings[1].patch.outcome == "it brings DD995"
    ((_, raw),) = result.texts.items()
    assert b"destroy_process_group" not in raw


def test_what_a_patch_brings_to_light_is_patched_with_it(tmp_path):
    first, group = two_findings(tmp_path)
    runs = []

    def run(texts):
        ((_, raw),) = texts.items()
        runs.append(raw)
        return Ran(ENDED, () if b"destroy" in raw else (group,))

    result = Verifier(Ran(ENDED, (first,)), tmp_path, run).result()
    patch = result.findings[0].patch
    assert (patch.verified, patch.title) == (
        True,
        "loader.sampler.set_epoch before each pass; destroy_process_group at the end",
    )
    assert patch.diff.count("\n+") == 3  # with the name of the file
    assert len(runs) == 2


TIMED, SLOW = [check.code for check in registry.all_checks() if check.timed][:2]


@pytest.mark.parametrize(
    ("codes", "verified", "outcome"),
    [
        ([TIMED], True, f"{CODE} is gone, nothing new; {TIMED} in this run says nothing of the patch: it goes by time"),
        ([TIMED, "DD998"], False, "it brings DD998"),
        ([CODE, TIMED], False, f"{CODE} is found again"),
    ],
)  # fmt: skip
def test_what_goes_by_time_is_not_judged_by_one_run(codes, verified, outcome, finding, tmp_path):
    after = Ran(ENDED, tuple(moved(finding, code=code) for code in codes))
    (found,) = Verifier(Ran(ENDED, (finding,)), tmp_path, lambda _: after).result().findings
    assert (found.patch.verified, found.patch.outcome) == (verified, outcome)


def test_one_run_does_not_verify_that_a_slow_rank_is_cured(finding):
    slow = replace(finding, code=TIMED)
    gone = judge([slow], Ran(ENDED, (slow,)), Ran(ENDED, ()), lambda _, line: line)
    again = judge([slow], Ran(ENDED, (slow,)), Ran(ENDED, (slow,)), lambda _, line: line)
    other = judge([slow], Ran(ENDED, (slow,)), Ran(ENDED, (replace(slow, code=SLOW),)), lambda _, line: line)
    outcome = f"{TIMED} is gone in this run, but one run does not tell for {TIMED}, which goes by time"
    assert [verdict.text for verdict in (gone, again, other)] == [outcome, f"{TIMED} is found again", outcome]
    assert not any(verdict.verified for verdict in (gone, again, other))

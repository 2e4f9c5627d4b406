import pytest

from ddpdoctor.model import Level, Source, Where
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, step, where
from tests.support.training import LINE_OF_UPDATE, backward, forward


def windows(*lengths, factor=lambda length: 0.5, left_over=0, ended="exhausted", begins=()):
    """``begins``: the backwards of the last window whose gradients begin anew."""

    def of(index, length, **changes):
        times = [index + 0.1 + n / 20 for n in range(length)]
        return step(
            index,
            forwards=tuple(forward(t) for t in times),
            backwards=tuple(
                backward(t + 0.01, 0, factor=factor(length), anew=index + 1 == len(lengths) and n in begins)
                for n, t in enumerate(times)
            ),
            **changes,
        )

    def change(rank, one):
        steps = tuple(of(index, length) for index, length in enumerate(lengths))
        trailing = of(len(lengths), left_over, optimizer_steps=()) if left_over else None
        passes = tuple(replace(own, ended=ended) for own in one.passes)
        return replace(one, steps=steps, trailing=trailing, passes=passes)

    return recorded(2, change)


def test_a_short_last_window_divided_as_if_it_were_full():
    finding = only_finding("DD210", Source.RUN, windows(2, 2, 1))
    assert finding.level is Level.WARN
    assert finding.headline == "an update sums 1 micro-batch whose loss was divided by 2 on ranks 0-1"
    assert finding.where == where(LINE_OF_UPDATE)
    assert finding.evidence[0].text == "updates: 1 of 1 micro-batch, 2 of 2 micro-batches"


def test_the_rest_of_an_epoch_that_leaks_into_the_next():
    finding = only_finding("DD210", Source.RUN, windows(2, 2, 3))
    assert "an update follows 3 micro-batches whose loss was divided by 2" in finding.headline
    assert "1.5 times" in finding.evidence[-1].text
    assert "zero_grad()" in finding.why


def test_full_windows_for_something_else_than_an_update():
    assert passed(
        "DD210",
        Source.RUN,
        windows(
            2,
            2,
            4,
            begins=(
                0,
                2,
            ),
        ),
    )


def test_the_rest_of_an_epoch_that_is_cleared():
    finding = only_finding(
        "DD210",
        Source.RUN,
        windows(
            2,
            2,
            3,
            begins=(
                0,
                1,
            ),
        ),
    )
    assert "an update follows 3 micro-batches" in finding.headline


def test_a_short_window_behind_a_full_one_for_something_else():
    finding = only_finding(
        "DD210",
        Source.RUN,
        windows(
            2,
            2,
            3,
            begins=(
                0,
                2,
            ),
        ),
    )
    assert "an update sums 1 micro-batch" in finding.headline


def test_two_windows_that_one_update_sums():
    finding = only_finding("DD210", Source.RUN, windows(2, 2, 4, begins=(0,)))
    assert "an update follows 4 micro-batches" in finding.headline


def test_micro_batches_after_the_last_update():
    finding = only_finding("DD210", Source.RUN, windows(2, 2, left_over=1))
    assert finding.headline.startswith("after the last update came 1 micro-batch")


def test_a_window_in_which_the_rank_was_stopped_is_not_judged():
    trace = windows(2, 2, left_over=1)
    stopped = replace(trace, ranks=tuple(replace(one, finished=False) for one in trace.ranks))
    assert passed("DD210", Source.RUN, stopped)


def test_a_last_window_that_divides_by_its_own_length_is_right():
    trace = windows(2, 2, 1, factor=lambda length: 1 / length)
    assert skipped("DD210", Source.RUN, trace).reason == "no loss was divided by a number of micro-batches"


def test_a_loss_that_is_halved_for_another_reason_is_no_window():
    trace = windows(1, 1, 1)
    assert "no loss was divided" in skipped("DD210", Source.RUN, trace).reason


def test_a_loss_that_is_not_divided_is_not_judged():
    assert skipped("DD210", Source.RUN, windows(2, 2, 1, factor=lambda length: None)).reason


def test_fast_forward_cuts_windows_itself():
    trace = windows(2, 2, left_over=1, ended="shortened")
    assert "cut short" in skipped("DD210", Source.RUN, trace).reason


def test_full_windows_pass():
    assert passed("DD210", Source.RUN, windows(2, 2, 2)).text == "every update summed 2 micro-batches"


CUT_SHORT = """\
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        window = WINDOW
        loss = criterion(model(x), y) / window
        loss.backward()
        if (i + 1) % 2 == 0 or i + 1 == len(loader):
            optimizer.step()
"""


def cut_short(folder, script, batches):
    file = folder / "train.py"
    file.write_text(script)
    trace = windows(2, 2, ended="shortened")
    numbered = list(enumerate(script.splitlines(), 1))

    def line_of(part):
        return Where(str(file), next(number for number, line in numbered if part in line), "<module>")

    def at(recording):
        def placed(own):
            backwards = tuple(replace(it, at=line_of(".backward(")) for it in own.backwards)
            updates = tuple(replace(it, at=line_of("optimizer.step(")) for it in own.optimizer_steps)
            return replace(own, backwards=backwards, optimizer_steps=updates)

        passes = (
            replace(it, at=line_of(" in enumerate(loader)"), batches=batches) for it in recording.passes
        )
        return replace(recording, steps=tuple(map(placed, recording.steps)), passes=tuple(passes))

    ranks = tuple(replace(rank, recording=at(rank.recording)) for rank in trace.ranks)
    return replace(trace, ranks=ranks)


COUNTED = CUT_SHORT.replace("        window = WINDOW", "        micro += 1").replace("(i + 1) %", "micro %")
RESET = COUNTED.replace("    for i", "    micro = 0\n    for i")


@pytest.mark.parametrize(
    "script",
    [
        CUT_SHORT,
        CUT_SHORT.replace("/ window", "/ 2"),
        RESET,
        CUT_SHORT.replace("window = WINDOW", "last = (i + 1) % 2 == 0")
        .replace("window", "2")
        .replace("(i + 1) % 2 == 0 or i + 1 == len(loader):", "last:"),
    ],
    ids=["a variable", "a number", "counted in the epoch", "a condition with a name"],
)
def test_a_last_window_beyond_the_cut(tmp_path, script):
    finding = only_finding("DD210", Source.RUN, cut_short(tmp_path, script, batches=17))
    assert finding.headline == (
        "an epoch of 17 batches ends with 1 micro-batch whose loss is divided by 2 on ranks 0-1"
    )
    assert "optimizer.step()" in script.splitlines()[finding.where.line - 1]


@pytest.mark.parametrize(
    ("script", "batches"),
    [
        (CUT_SHORT, 16),
        (CUT_SHORT.replace("WINDOW", "2 if i < 16 else 1"), 17),
        (CUT_SHORT.replace("WINDOW", "min(2, n - i)"), 17),
        (CUT_SHORT.replace("optimizer.step()", "optimizer.step()\n            break"), 17),
        (
            CUT_SHORT.replace("window = WINDOW", "if i >= 16:\n            continue"),
            17,
        ),
        ("micro = 0\n" + RESET.replace("    micro = 0\n", ""), 17),
        (CUT_SHORT.replace("(i + 1)", "(epoch * 17 + i + 1)"), 17),
    ],
    ids=[
        *("a multiple", "by its own length", "the shorter", "left before its end", "the rest is skipped"),
        *("counted through epochs", "counted from the number of the epoch"),
    ],
)
def test_a_last_window_that_may_be_right_is_not_judged(tmp_path, script, batches):
    trace = cut_short(tmp_path, script, batches)
    assert "no last window was seen" in skipped("DD210", Source.RUN, trace).reason

import pytest

from ddpdoctor.model import Confidence, Level, Source, Where
from ddpdoctor.recorder.events.files import Printed, Save
from ddpdoctor.recorder.events.training import Collective, Forward
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import evaluating
from tests.support.recordings import recorded, replace, where

LINE = Printed(11.5, where(66), "accuracy 0.75")


def evaluated(on_rank_0=None, on_all=None, order_of=lambda rank: range(rank, 16, 2), **fields):
    """Parts of 16 samples evaluated from 10 s to 11 s, after training; fields are the recording's."""

    def change(rank, one):
        made = evaluating(one, order_of(rank))
        for own in (on_all, on_rank_0 if rank == 0 else None):
            made = replace(made, **(own or {}))
        return made

    return recorded(change=change)


def test_rank_0_prints_its_own_number():
    finding = only_finding("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "rank 0 prints the result after an evaluation of 8 of 16 samples, with nothing reduced over the ranks"
    )
    assert finding.where == where(66)
    assert finding.evidence[0].text == "'accuracy 0.75'"
    assert finding.confidence is Confidence.LIKELY  # the script cannot be read


def test_one_line_that_prints_for_two_loaders_is_one_finding():
    def change(rank, one):
        made = evaluating(one, range(rank, 16, 2))
        again = evaluating(made, range(rank, 16, 2), begin=20.0)
        loader = replace(again.loaders[-1], index=8, at=where(61))
        lines = Record.made(LINE, replace(LINE, time=21.5)) if rank == 0 else one.record
        passes = (*made.passes, replace(again.passes[-1], loader=8))
        return replace(again, loaders=(*made.loaders, loader), passes=passes, record=lines)

    only_finding("DD502", Source.RUN, recorded(change=change))


def test_every_rank_steps_a_scheduler_by_its_own_number():
    def change(rank, one):
        made = evaluating(one, range(rank, 16, 2))
        plateau = SchedulerStep(0, where(69), "ReduceLROnPlateau", 0.25 + rank, time=11.6)
        return replace(made, record=Record.made(plateau))

    finding = only_finding("DD502", Source.RUN, recorded(change=change))
    assert finding.headline.startswith("ranks 0-1 step ReduceLROnPlateau by their own metrics after")
    assert finding.evidence[1].text == "metric 1.25"


def test_a_reduction_passes():
    for operation in ("all_reduce", "all_gather_object", "gather", "broadcast"):
        call = Collective(11.2, where(65), operation)
        passed("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_a_reduction_in_each_batch_passes():
    call = Collective(10.5, where(64), "all_reduce")
    passed("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_a_barrier_reduces_nothing():
    call = Collective(11.2, where(65), "barrier")
    only_finding("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_the_whole_set_on_every_rank_is_right():
    trace = evaluated({"record": Record.made(LINE)}, order_of=lambda rank: range(16))
    assert skipped("DD502", Source.RUN, trace).reason == "the evaluation is not divided among the ranks"


def test_the_whole_set_on_rank_0_is_right():
    trace = recorded(
        change=lambda rank, one: replace(
            one if rank else evaluating(one, range(16)), record=Record.made(LINE)
        )
    )
    assert "together" in skipped("DD502", Source.RUN, trace).reason


def test_a_line_without_a_result_is_right():
    passed("DD502", Source.RUN, evaluated({"record": Record.made(replace(LINE, text="epoch 3 is done"))}))


def test_every_rank_that_prints_its_own_part_is_right():
    passed("DD502", Source.RUN, evaluated(on_all={"record": Record.made(LINE)}))


def test_results_left_in_a_file_of_each_rank_are_right():
    def change(rank, one):
        save = Save(f"/jobs/part{rank}.pt", where(68), 11.6, 11.7)
        return replace(evaluating(one, range(rank, 16, 2)), saves=(save,))

    passed("DD502", Source.RUN, recorded(change=change))


def test_the_metric_of_an_earlier_round_is_not_this_ones():
    """The scheduler was stepped before this evaluation began, by what another had given."""
    plateau = SchedulerStep(0, where(69), "ReduceLROnPlateau", 0.25, time=9.5)
    passed("DD502", Source.RUN, evaluated(on_all={"record": Record.made(plateau)}))


def test_weights_that_are_exchanged_are_no_metric():
    call = Collective(11.2, where(65), "broadcast", weight_of="weight")
    only_finding("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_what_is_printed_of_each_batch_is_not_the_result():
    batch = Printed(10.5, where(62), "batch 1: loss 0.75")
    finding = only_finding("DD502", Source.RUN, evaluated({"record": Record.made(batch, LINE)}))
    assert finding.where == where(66)


def test_a_number_in_a_path_is_not_the_result():
    saved = Printed(11.2, where(64), "saved to /jobs/17.47.41_run/epoch=0000.ckpt")
    passed("DD502", Source.RUN, evaluated({"record": Record.made(saved)}))
    both = Printed(11.2, where(64), "saved 0.75 to /jobs/run/last.ckpt")
    assert only_finding("DD502", Source.RUN, evaluated({"record": Record.made(both)})).where == where(64)


SCRIPT = """\
import time, torch, torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader
model, data, best = nn.Linear(4, 2), torch.ones(9, 4), 9.0
a, b = DataLoader(data), \\
    DataLoader(data)  # held out
for x in a:
    t = model(x).sum()  # trains
    t.backward()
n = c = k = 0.0
for x, y in b:  # evaluates
    o = model(x)  # forward
    n += (o - y).square().sum().item()
    c += (o.argmax(1) == y).sum()
    k += len(y)
{use}
"""


@pytest.fixture
def of_script(tmp_path):
    """Makes a run of a script: each rank evaluates its part, rank 0 does something by the lines that are marked."""

    def make(
        use,
        exchange=None,
        own=("used",),
        by_hand=False,
        forward="forward",
        printing=lambda rank: rank == 0,
        **scripts,
    ):
        text = scripts.get("script", SCRIPT).replace("{use}", use)
        file = tmp_path / "train.py"
        file.write_text(text)

        def at(mark):
            return Where(str(file), next(n for n, it in enumerate(text.splitlines(), 1) if f"# {mark}" in it))

        def change(rank, one):
            made = one if by_hand else evaluating(one, range(rank, 16, 2))
            if not by_hand:
                *loaders, loader = made.loaders
                *passes, last = made.passes
                loaders = (
                    *(replace(it, at=at("trains")) for it in loaders),
                    replace(loader, at=at("held out")),
                )
                made = replace(made, passes=(*passes, replace(last, at=at("evaluates"))), loaders=loaders)
            forwards = [Forward(10.5, at("forward"), 0, grad=False, training=False, input=f"input {rank}")]
            calls = [Collective(11.1, at(exchange), "all_reduce", shape=())] if exchange else []
            done = [] if not printing(rank) else [Printed(11.5, at(mark), "0.75 of 3.5") for mark in own]
            saves = (
                (Save("/jobs/kept.pt", at("saved"), 11.6, 11.7),) if "# saved" in text and not rank else ()
            )
            return replace(made, saves=saves, record=Record.made(*forwards, *calls, *done))

        return recorded(change=change)

    return make


@pytest.mark.parametrize(
    "use",
    [
        "print(f'{n / k:.3f}')  # used",
        "train_loss = n / k\nprint('train loss %.3f' % train_loss)  # used",
        "def f(u):\n    return {'seconds': u / k}\nprint(f(n))  # used",
        "class C:\n    def __init__(self, u):\n        self.u = u\nm = C(c)\nprint('took {} s'.format(m.u))  # used",
    ],
    ids=["in a text", "called a loss of training", "in a dictionary", "an attribute"],
)
def test_a_result_is_followed_to_where_it_is_printed(of_script, use):
    assert only_finding("DD502", Source.RUN, of_script(use)).where.line == SCRIPT.count("\n") + use.count(
        "\n"
    )


@pytest.mark.parametrize(
    "use",
    [
        "val_loss = t.item()\nprint(f'val loss {val_loss:.3f}')  # used",
        "val_accuracy = time.time() - 3\nprint(f'val accuracy {val_accuracy:.3f}')  # used",
        "best_accuracy = 0.5\nprint(f'best accuracy {best_accuracy:.3f}')  # used",
        "print(f'{k:.1f} samples')  # used",
    ],
    ids=["a loss of training", "a time", "a setting", "how many samples"],
)
def test_what_else_is_printed_after_the_evaluation_is_no_result(of_script, use):
    passed("DD502", Source.RUN, of_script(use))


def test_without_a_loader_only_what_the_forward_gave_is_a_result(of_script):
    finding = only_finding("DD502", Source.RUN, of_script("print(n / 3)  # used", by_hand=True))
    assert finding.headline.startswith("rank 0 prints the result after an evaluation of its own part")
    passed("DD502", Source.RUN, of_script("took = 3.5\nprint('val loss', took)  # used", by_hand=True))
    passed("DD502", Source.RUN, of_script("unread(n)\nprint(kept.val_loss)  # used", by_hand=True))


@pytest.mark.parametrize(
    ("condition", "is_chosen"),
    [
        ("n < best", True),
        ("dist.get_rank() == 0 and c / k > 0.5", True),
        ("best > 3", False),
        ("t < best", False),
    ],
)
def test_a_checkpoint_that_is_saved_by_its_own_number(of_script, condition, is_chosen):
    use = f"def keep():\n    torch.save(model, 'best.pt')  # saved\nif {condition}:  # decides\n    keep()\n"
    trace = of_script(use, own=())
    if is_chosen:
        finding = only_finding("DD502", Source.RUN, trace)
        assert finding.headline.startswith(
            "rank 0 chooses the best checkpoint after an evaluation of 8 of 16"
        )
        assert finding.where.line == SCRIPT.count("\n") + 2
    else:
        passed("DD502", Source.RUN, trace)


def test_the_gravest_use_is_told(of_script):
    use = "print(n / k)  # used\nif n < best:\n    torch.save(model, 'x.pt')  # saved"
    assert only_finding("DD502", Source.RUN, of_script(use)).headline.startswith("rank 0 chooses")


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("dist.all_reduce(c)  # sums\nprint(n / k, c / 16)  # used", "n"),
        ("dist.all_reduce(c)  # sums\nprint(c / 16)  # used", None),
        ("s = torch.tensor([n, c])\ndist.all_reduce(s)  # sums\nprint(s[0], s[1])  # used", None),
        ("s = torch.tensor(n)\ndist.all_reduce(s)  # sums\nprint('here', n, 'mean', s)  # used", None),
        (
            "def f(u):\n    v = torch.tensor(u)\n    dist.all_reduce(v)  # sums\n    return v\nprint(f(n))  # used",
            None,
        ),
        ("import lib\nw = lib.mean_of_ranks(n)  # sums\nprint(w)  # used", None),
    ],
    ids=["one is not", "it alone", "both", "beside its own", "by a function", "by code that nobody read"],
)
def test_a_result_beside_one_that_is_reduced(of_script, use, name):
    trace = of_script(use, exchange="sums")
    if name is None:
        passed("DD502", Source.RUN, trace)
    else:
        headline = only_finding("DD502", Source.RUN, trace).headline
        assert headline.endswith(f"with {name} not reduced over the ranks")


@pytest.mark.parametrize(
    ("use", "is_of_whole"),
    [
        ("print(c / len(b.dataset))  # used", True),
        ("z = 100 * c / len(data)\nprint(f'{z:.2f}')  # used", True),
        ("print(c / k)  # used", False),
        ("print(c / len(b))  # used", False),
        ("print(c / len(b.sampler))  # used", False),
        ("print(t / len(data))  # used", False),
        ("dist.all_reduce(c)  # sums\nprint(c / len(data))  # used", False),
    ],
)
def test_each_rank_prints_its_own_sum_over_the_length_of_the_whole_set(of_script, use, is_of_whole):
    exchange = "sums" if "# sums" in use else None
    trace = of_script(use, exchange=exchange, printing=lambda rank: True)
    if is_of_whole:
        finding = only_finding("DD502", Source.RUN, trace)
        assert finding.headline.startswith(
            "ranks 0-1 print their own sums over the length of the whole set after an evaluation of 8 of 16"
        )
    else:
        passed("DD502", Source.RUN, trace)


SHARED = """\
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 2)
def run(loader):
    total = 0.0
    for x in loader:  # evaluates
        total += model(x).sum().item()  # forward
    return total
a = DataLoader(0)  # trains
b = DataLoader(1)  # held out
p, q = run(a), run(b)
{use}
"""


@pytest.mark.parametrize(("use", "is_result"), [("print(q)  # used", True), ("print(p)  # used", False)])
def test_a_function_that_trains_and_evaluates(of_script, use, is_result):
    trace = of_script(use, script=SHARED)
    (only_finding if is_result else passed)("DD502", Source.RUN, trace)

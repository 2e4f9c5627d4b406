import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Collective
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import LINE_OF_UPDATE, diverging, with_update

SCORE = Collective(50.0, where(70), "all_gather", shape=(1,))


def alone(rank, one, *collectives):
    steps = tuple(diverging(rank, own, collectives=collectives) for own in one.steps)
    return replace(one, wrappers=(), steps=steps, collectives=collectives)


def test_ranks_that_train_models_of_their_own():
    finding = only_finding("DD227", Source.RUN, recorded(3, alone))
    assert finding.headline == (
        "ranks 0-2 train without DistributedDataParallel: 2 of 2 parameters differ after step 0"
    )
    assert finding.where == where(LINE_OF_UPDATE)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            "def build(model):\n    if torch.cuda.is_available():\n        model = DDP(model)\n    return model\n",
            3,
        ),
        ("has = torch.cuda.is_available()\nif has:\n    if x > 3:\n        model = DDP(model)\n", 3),
        ("cuda_device_gpu = 3\nif x > 3:\n    if cuda_device_gpu:\n        model = DDP(model)\n", 4),
        ("model = DDP(model)\n", 2),
        ("if has:\n    a = DDP(a)\nelse:\n    b = DDP(b)\n", LINE_OF_UPDATE),
        ("def DistributedDataParallel(a):\n    pass\nDistributedDataParallel(model)\n", LINE_OF_UPDATE),
    ],
)
def test_the_wrap_that_was_left_out(tmp_path, source, line):
    file = tmp_path / "train.py"
    file.write_text(f"import torch; from torch.nn.parallel import DistributedDataParallel as DDP\n{source}")

    def change(rank, recording):
        recording = alone(rank, recording)
        at = replace(where(LINE_OF_UPDATE), file=str(file))
        return replace(recording, steps=tuple(with_update(step, at=at) for step in recording.steps))

    assert only_finding("DD227", Source.RUN, recorded(2, change)).where.line == line


def test_a_loss_that_is_averaged_for_the_log_changes_nothing():
    log = Collective(0.5, where(70), "all_reduce", shape=(3,))
    assert only_finding("DD227", Source.RUN, recorded(2, lambda rank, one: alone(rank, one, log)))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"loaders": ()}, id="data of their own"),
        pytest.param({"loaders": (), "collectives": (SCORE,)}, id="scores gathered at the end"),
    ],
)
def test_models_of_their_own_on_purpose(changes):
    trace = recorded(2, lambda rank, one: replace(alone(rank, one), **changes))
    assert skipped("DD227", Source.RUN, trace).reason.startswith("each rank trains a model of its own")


@pytest.mark.parametrize("equal", [True, False])
def test_ranks_that_speak_while_they_train_mean_one_model_unless_they_began_unequal(equal):
    def change(rank, one):
        one = replace(alone(rank, one, replace(SCORE, time=2.0)), loaders=())
        rates = ({"lr": 0.1 if equal else rank},)
        return replace(one, steps=tuple(with_update(own, hyperparameters=rates) for own in one.steps))

    (only_finding if equal else skipped)("DD227", Source.RUN, recorded(2, change))


def test_tensors_that_travel_may_be_weights():
    flat = Collective(0.5, where(70), "all_reduce", shape=(100,))
    passed("DD227", Source.RUN, recorded(2, lambda rank, one: alone(rank, one, flat)))


def test_gradients_that_are_averaged_by_hand_are_right():
    passed("DD227", Source.RUN, recorded(2, lambda rank, one: replace(one, wrappers=())))


def test_averaged_gradients_of_unequal_weights_are_another_disease():
    def change(rank, one):
        equal = {"weight": "g", "bias": "g"}
        return replace(
            one, wrappers=(), steps=tuple(with_update(diverging(rank, o), gradients=equal) for o in one.steps)
        )

    passed("DD227", Source.RUN, recorded(2, change))


def test_weights_averaged_at_intervals_are_right():
    def change(rank, one):
        one = alone(rank, one)
        met = with_update(one.steps[2], before={"weight": "mean", "bias": "mean"})
        return replace(one, steps=(*one.steps[:2], met, *one.steps[3:]))

    passed("DD227", Source.RUN, recorded(2, change))


def test_a_wrapped_model_passes_and_one_rank_is_skipped():
    assert passed("DD227", Source.RUN, recorded()).text == "the model is wrapped in DistributedDataParallel"
    assert skipped("DD227", Source.RUN, recorded(1, alone)).reason

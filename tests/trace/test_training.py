"""Training steps, put together from events."""

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Backward, Collective, DetailedStep, Forward, Progress
from ddpdoctor.recorder.events.updates import OptimizerStep, SchedulerStep
from ddpdoctor.trace.data import steps_of
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import recording_of


def forward(time):
    return Forward(time, None, 0)


def test_what_lies_between_two_updates_is_a_step():
    events = [
        *(forward(1.0), Backward(1.5, None), OptimizerStep(0, 1.8, None, hyperparameters=({"lr": 0.1},))),
        *(SchedulerStep(0, None, "StepLR", step=0), forward(2.0), Collective(2.2, None, "all_reduce")),
        *(OptimizerStep(0, 2.8, None, step=1, phases={"total": 1.0}), forward(3.0)),
    ]
    (first, second), trailing, count = steps_of(Record.made(*events))
    assert (first.index, first.time, first.schedulers) == (0, 1.0, (events[3],))
    assert (first.forwards, first.backwards) == ((events[0],), (events[1],))
    assert (second.forwards, second.collectives, second.phases) == (
        (events[4],),
        (events[5],),
        {"total": 1.0},
    )
    assert second.optimizer_steps[0].hyperparameters == ({"lr": 0.1},)
    assert (trailing.index, trailing.forwards, count) == (2, (events[7],), 2)


def test_updates_without_a_backward_between_them_are_one_step():
    updates = OptimizerStep(0, 1.8, None), OptimizerStep(1, 1.9, None)
    (step,), trailing, _ = steps_of(Record.made(forward(1.0), updates[0], forward(1.85), updates[1]))
    assert (step.optimizer_steps, len(step.forwards), trailing) == (updates, 2, None)


def test_what_came_before_a_step_that_is_told_in_full_again_is_forgotten():
    events = forward(1.0), DetailedStep(40), forward(2.0), OptimizerStep(0, 2.5, None, step=40), Progress(90)
    (step,), _, count = steps_of(Record.made(*events))
    assert (step.forwards, count) == ((events[2],), 90)


def test_a_collective_that_did_not_end_belongs_to_no_step():
    stuck = Collective(1.2, None, "barrier", ended=False)
    (step,), _, _ = steps_of(Record.made(forward(1.0), stuck, OptimizerStep(0, 1.5, None)))
    assert step.collectives == ()


def learning(*marks: str) -> list[str]:
    """Which forwards learn, of a sequence of forwards, backwards (``b``) and updates (``u``). A forward is written as
    its line, in upper case in train mode."""
    events: list[object] = []
    for time, mark in enumerate(marks, 1):
        if mark == "b":
            events.append(Backward(float(time), None))
        elif mark == "u":
            events.append(OptimizerStep(0, float(time), None))
        else:
            at = Where("train.py", ord(mark.upper()))
            events.append(Forward(float(time), at, 0, training=mark.isupper()))
    recording = recording_of(Record.made(*events))
    return [chr(it.at.line) for it in recording.forwards if recording.learns(it)]


def test_what_evaluates_with_autograd_learns_nothing():
    assert learning("T", "b", "u", "e", "e", "T", "b", "u") == ["T", "T"]
    # The same line trains and evaluates, as a function for both does.
    assert learning("T", "b", "u", "t", "t", "T", "b", "u") == ["T", "T"]
    # Nobody has put the model back into train mode.
    assert learning("T", "b", "u", "t", "b", "u", "t") == ["T", "T", "T"]
    # A loss of two forwards, and a model that is trained in eval mode.
    assert learning("S", "T", "b", "u") == ["S", "T"]
    assert learning("s", "t", "b", "u", "s", "t", "b", "u") == ["S", "T", "S", "T"]
    # One part of the training is in eval mode.
    assert learning("T", "b", "d", "b", "u") == ["T", "D"]
    # Nobody knows yet.
    assert learning("e", "e") == ["E", "E"]

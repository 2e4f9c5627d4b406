"""Frames of stacks: which of them a finding names."""

from ddpdoctor.blame.frames import Frame, where_in

SCRIPT = Frame("train", "/home/me/train.py", 12)
CALLBACK = Frame("on_batch_end", "/home/me/callbacks.py", 5)
TORCH = Frame("backward", "/usr/lib/python3.11/site-packages/torch/autograd/graph.py", 979)
FRAMEWORK = Frame("fit", "/usr/lib/python3.11/site-packages/lightning/trainer.py", 600)


def test_a_line_of_the_script_is_named_before_those_of_libraries():
    assert where_in((SCRIPT, TORCH)).line == 12
    assert where_in((SCRIPT, FRAMEWORK, CALLBACK, FRAMEWORK, TORCH)).line == 5


def test_without_a_line_of_the_script_the_innermost_is_named():
    assert where_in((FRAMEWORK, TORCH)).line == 979
    assert where_in(()) is None

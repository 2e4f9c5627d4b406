"""What is said of exceptions that end ranks."""

from ddpdoctor.text import uncoloured
from ddpdoctor.trace.raised import remedy


def test_a_checkpoint_that_torch_refuses_has_a_remedy_of_its_own():
    told = remedy("Weights only load failed. This file can still be loaded")
    assert told is not None
    assert "weights_only=False" in told
    assert remedy("index out of range") is None


def test_colours_are_taken_out_of_a_message():
    assert uncoloured("\x1b[1mdo those steps\x1b[0m only") == "do those steps only"

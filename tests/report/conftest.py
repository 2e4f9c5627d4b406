import pytest

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.model import Family, Judgement, Passed


class ParametersUnused(Check):
    """A parameter got no gradient on *some* ranks.

    What it finds:
        One rank skips a parameter.

    Why it matters:
        The others wait.

    Example:
        A branch that only rank 2 takes:
            if rank == 2: loss = body(x)

    Fix:
        Use it on every rank.
    """

    code = "DD904"
    name = "parameters-unused"
    family = Family.GRADIENTS
    title = "every parameter gets a gradient"

    def examine_group(self, ranks: object) -> Judgement:
        return Passed("not asked here")


@pytest.fixture
def one_check(monkeypatch):
    """A registry with one check, so that a golden file does not change with the words of real ones."""
    monkeypatch.setattr(registry, "_checks_with", lambda _: (ParametersUnused(),))

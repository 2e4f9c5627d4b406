"""The order in which a terminal shows the lines of several ranks changes no verdict."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.logs import explained, raised, summary
from tests.support.waits import sizes, wait

OUTPUTS = Path(__file__).parent / "outputs"
LABEL = re.compile(r"\[(?:rank|default)(\d+)\]:")
VICTIM = "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:33177"


def shuffled(text: str, chance) -> str:
    """The lines of ranks merged anew, each rank's in its order; what has no rank stays before or after them."""
    lines = text.splitlines(keepends=True)
    numbers = [n for n, line in enumerate(lines) if LABEL.match(line)]
    first, last = numbers[0], numbers[-1] + 1
    queues: dict[str, list[str]] = {}
    for line in lines[first:last]:
        found = LABEL.match(line)
        queues.setdefault(found[1] if found else "", []).append(line)
    merged = []
    while queues:
        rank = chance.choice(sorted(queues))
        merged.append(queues[rank].pop(0))
        if not queues[rank]:
            del queues[rank]
    return "".join([*lines[:first], *merged, *lines[last:]])


SYNTHETIC = {
    "victims": "".join(raised(rank, "RuntimeError", VICTIM) for rank in (0, 1, 3))
    + raised(2, "KeyError", "'x'"),
    "all alike": "".join(raised(rank, "ValueError", "bad", line=7) for rank in range(8)) + summary(3),
    "waits": sizes(4) + wait(0) + wait(1) + wait(3),
    "killed": raised(0, "RuntimeError", VICTIM) + raised(2, "RuntimeError", VICTIM) + summary(1, -9),
}
NAMES = (
    "exception_8",
    "exception_tee",
    "unused_tee",
    "chained",
    "model_differs",
    "files",
    "worker_raises",
    "prefix",
)
TEXTS = SYNTHETIC | {name: (OUTPUTS / f"{name}.log").read_text() for name in NAMES}


@pytest.mark.parametrize("name", TEXTS)
@given(chance=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=12)
def test_the_verdict_stays(name, chance):
    expected, found = explained(TEXTS[name])[0], explained(shuffled(TEXTS[name], chance))[0]
    assert (found.code, found.level) == (expected.code, expected.level)
    if expected.code != "DD204":  # both ranks say the same of themselves
        assert (found.headline, found.where) == (expected.headline, expected.where)


def test_tracebacks_of_ranks_without_a_label_that_run_into_each_other():
    one = raised(0, "FileNotFoundError", "no such file: x.yaml").replace("[rank0]: ", "").splitlines()
    text = "".join(f"{line}\n{line}\n" for line in one)
    (finding,) = explained(text)
    assert finding.headline == "a process failed with FileNotFoundError 'no such file: x.yaml'"
    assert finding.where is not None


def test_lines_that_run_together():
    text = (
        "12%|#| 1/8 [00:01<00:07, 1it/s]"
        + raised(1, "ValueError", "bad")
        + "step 2 done"
        + raised(0, "KeyError", "'y'")
    )
    assert explained(text)[0].headline == "rank 1 failed with ValueError 'bad'"
    assert explained("loading ..." + raised(3, "ValueError", "bad"))[0].ranks == (3,)

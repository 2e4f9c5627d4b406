"""Where the time of a training step goes: the lines of the script, and what is waited for other ranks."""

import pytest

from ddpdoctor.recorder.events.training import LineTimes
from ddpdoctor.trace.recording import Recording
from tests.recorder.trained import line_of, run

pytestmark = pytest.mark.slow

LATE = 0.15
WAITS = {
    "backward": "model(torch.randn(3, 4)).mean().backward()",
    "collective": "dist.all_reduce(torch.ones(1)); loss.backward()",
    "handle": "dist.all_reduce(torch.ones(1), async_op=True).wait(); loss.backward()",
    "barrier": "dist.barrier(); loss.backward()",
}


def seconds_at(recording: Recording, line: int) -> float:
    """How long a rank was at a line, as far as it was looked at."""
    lines = (each for event in recording.events(LineTimes) for each in event.lines)
    return sum(each.seconds for each in lines if each.at.line == line)


@pytest.mark.parametrize("waits", WAITS.values(), ids=WAITS)
def test_a_rank_that_is_late_works_and_the_others_wait(waits, tmp_path):
    ran = run(
        tmp_path,
        f"""
        import time

        def work():
            time.sleep({LATE})

        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            loss = model(torch.randn(3, 4)).mean()
            if rank == 0:
                work()
            {waits}
            optimizer.step()
        """,
    )
    late, other = ran.trace.recordings().values()
    at = line_of(tmp_path, "time.sleep")
    assert seconds_at(late, at) > LATE
    assert seconds_at(other, at) == 0
    assert max(step.phases["waits"] for step in other.steps[1:]) > LATE / 2
    assert min(step.phases["waits"] for step in late.steps[1:]) < LATE / 2


def test_buffers_of_a_late_rank_are_waited_for_in_forward(tmp_path):
    ran = run(
        tmp_path,
        f"""
        import time
        model = DDP(nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            if rank == 0:
                time.sleep({LATE})
            model(torch.randn(3, 4)).mean().backward()
            optimizer.step()
        """,
    )
    steps = ran.trace.recordings()[1].steps[1:]
    assert max(step.phases["waits"] for step in steps) > LATE / 2
    assert min(step.phases.get("forward", 0.0) for step in steps) < LATE / 2


def test_nobody_looks_after_the_first_steps(tmp_path):
    ran = run(
        tmp_path,
        """
        import sys, time
        model = DDP(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(80):
            model(torch.randn(3, 4)).mean().backward()
            optimizer.step()
        until = time.monotonic() + 60
        while True:
            names = [frame.f_code.co_name for frame in sys._current_frames().values()]
            if "_keep_looking" not in names or time.monotonic() > until:
                break
            time.sleep(0.01)
        print("_keep_looking" in names)
        """,
    )
    assert ran.outputs[0].split() == ["False"]

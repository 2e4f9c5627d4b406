"""Which passes end early, and where a run that takes too long is ended."""

import time

import pytest

from tests.recorder.scripts import recorded, recordings, run

pytestmark = pytest.mark.slow

TRAIN = """
data = TensorDataset(torch.randn(400, 3), torch.randn(400, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=2, sampler=sampler)
model = DistributedDataParallel(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def learn(x, y):
    (model(x) - y).square().mean().backward()
def update():
    optimizer.step()
    optimizer.zero_grad()
"""


def test_epochs_get_the_batches_that_are_asked_for(tmp_path):
    script = """
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            learn(x, y)
            update()
        print(len(loader), len(sampler))
        model.eval()
        with torch.no_grad():
            for x, y in DataLoader(data, batch_size=50):
                model(x)
        model.train()
    torch.save(model.state_dict(), "model.pt") if rank == 0 else None
    print("end")
    """
    ran = run(tmp_path, TRAIN + tidy(script), nproc=2, batches=8)
    assert [output.splitlines() for output in ran.outputs] == [["100 200"] * 5 + ["end"]] * 2
    for recording in recordings(ran):
        training = [one for one in recording.passes if one.training]
        assert [one.drawn for one in training] == [8] * 5
        assert [len(one.indices) for one in training] == [200] * 5
        assert [one.batches for one in training] == [100] * 5
        evaluation = [one for one in recording.passes if not one.training]
        assert [(one.drawn, one.ended, one.evaluation) for one in evaluation] == [(8, "exhausted", True)] * 5
        assert recording.exit.how == "returned"
    assert ran.trace.shortened is not None
    assert (ran.trace.shortened.batches, ran.trace.shortened.steps) == (8, None)


@pytest.mark.parametrize(("window", "drawn"), [(1, 8), (3, 9), (4, 8), (7, 14), (100, 100)])
def test_a_pass_is_left_between_two_updates(tmp_path, window, drawn):
    script = f"""
    for i, (x, y) in enumerate(loader):
        learn(x, y)
        if (i + 1) % {window} == 0:
            update()
    """
    recording = recorded(tmp_path, TRAIN + tidy(script), nproc=2, batches=8)
    assert recording.passes[0].drawn == drawn
    assert recording.trailing is None or not recording.trailing.backwards


def test_batches_taken_by_next_are_not_withheld(tmp_path):
    script = """
    batches = iter(loader)
    for i in range(len(loader)):
        x, y = next(batches)
    print(i)
    """
    ran = run(tmp_path, TRAIN + tidy(script), batches=8)
    assert ran.outputs == ("199\n",)
    assert recordings(ran)[0].passes[0].ended in ("left", "open")


def test_full_length_on_request(tmp_path):
    recording = recorded(tmp_path, TRAIN + "for x, y in loader: learn(x, y); update()\n", full=True)
    assert (recording.passes[0].drawn, recording.passes[0].ended) == (200, "exhausted")


def test_a_loop_without_passes_ends_on_every_rank_after_the_same_step(tmp_path):
    script = """
    print("printed", end="")
    for step in range(100_000):
        for _ in range(2):
            learn(torch.randn(2, 3), torch.randn(2, 1))
        update()
        if step % 10 == 9:
            with torch.no_grad():
                model.eval()(torch.randn(2, 3))
                model.train()
    print("never")
    """
    ran = run(tmp_path, TRAIN + tidy(script), nproc=3, budget=2)
    assert ran.outputs == ("printed",) * 3
    (steps,) = {recording.step_count for recording in recordings(ran)}
    for recording in recordings(ran):
        assert (recording.exit.how, recording.exit.status) == ("shortened", 0)
        assert recording.trailing is None or not recording.trailing.backwards
    assert ran.trace.shortened is not None
    assert ran.trace.shortened.steps == steps
    assert all(one.finished for one in ran.trace.ranks)


def test_a_generator_that_begins_again_and_again_is_ended_too(tmp_path):
    script = """
    def batches():
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            for batch in loader:
                yield batch
            epoch += 1
    stream = batches()
    for step in range(100_000):
        learn(*next(stream))
        update()
    """
    recording = recorded(tmp_path, TRAIN + tidy(script), nproc=2, batches=8, time_limit=2)
    assert recording.exit.how == "shortened"
    assert [one.drawn for one in recording.passes][:7] == [8] * 7
    assert [one.sampler.epoch for one in recording.passes] == list(range(len(recording.passes)))


def test_time_ends_a_run_of_many_epochs_on_every_rank_after_the_same_step(tmp_path):
    script = """
    import time
    for epoch in range(100_000):
        for x, y in loader:
            learn(x, y)
            update()
            time.sleep(0.001 * rank)
    """
    ran = run(tmp_path, TRAIN + tidy(script), nproc=2, time_limit=2)
    first, second = recordings(ran)
    assert first.exit.how == second.exit.how == "shortened"
    assert first.step_count == second.step_count


EPOCHS = """
import time
for epoch in range({epochs}):
    sampler.set_epoch(epoch)
    for x, y in loader:
        learn(x, y)
        update()
        time.sleep({pause} + 0.001 * rank)
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=2):
            model(x)
            time.sleep({pause} / 10)
print("end")
"""


def test_a_script_that_fits_is_whole(tmp_path):
    ran = run(tmp_path, TRAIN + EPOCHS.format(epochs=3, pause=0.002), nproc=2, budget=60)
    for recording in recordings(ran):
        assert [one.drawn for one in recording.passes] == [100, 200] * 3
        assert {one.ended for one in recording.passes} == {"exhausted"}
    assert ran.trace.shortened is None


def test_a_longer_one_reaches_its_later_epochs_and_its_end_within_the_budget(tmp_path):
    began = time.monotonic()
    ran = run(tmp_path, TRAIN + EPOCHS.format(epochs=3, pause=0.1), nproc=2, budget=6)
    assert time.monotonic() - began < 25
    assert ran.outputs == ("end\n",) * 2
    first, second = ([one.drawn for one in recording.passes] for recording in recordings(ran))
    assert first == second
    assert len(first) == 6
    assert 100 > first[0] > first[2] >= first[4] >= 2
    assert first[0] >= 8
    assert ran.trace.shortened.passes + ran.trace.shortened.whole == 6


def test_a_pass_of_slow_batches_gets_eight(tmp_path):
    recording = recorded(
        tmp_path, TRAIN + EPOCHS.format(epochs=2, pause=0.3), nproc=2, budget=1, time_limit=60
    )
    assert [one.drawn for one in recording.passes if one.training] == [8, 2]


READ_AHEAD = """
def ahead(batches):
    held = None
    for batch in batches:
        if held is not None:
            yield held
        held = batch
    yield held
for x, y in ahead(loader):
    learn(x, y)
    update()
"""
IN_A_THREAD = """
import queue, threading
waiting = queue.Queue(2)
def fill():
    for batch in loader:
        waiting.put(batch)
    waiting.put(None)
threading.Thread(target=fill, daemon=True).start()
while (batch := waiting.get()) is not None:
    learn(*batch)
    update()
"""
UNDER_JOIN = """
with model.join():
    for x, y in loader:
        learn(x, y)
        update()
"""
ALONE = """
if rank == 0:
    own = nn.Linear(3, 1)
    for x, y in loader:
        own(x).sum().backward()
dist.barrier()
"""


@pytest.mark.parametrize("loop", [READ_AHEAD, IN_A_THREAD, UNDER_JOIN, ALONE])
def test_what_is_never_cut_short(tmp_path, loop):
    recording = recorded(tmp_path, TRAIN + loop, nproc=2, batches=8)
    assert [(one.drawn, one.ended) for one in recording.passes] == [(100, "exhausted")]


def tidy(script: str) -> str:
    return "\n".join(line[4:] for line in script.splitlines()) + "\n"

"""Fast-forward: which passes end early, and where a run that goes on and on is ended."""

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


def test_epochs_get_their_batches_and_later_ones_fewer(tmp_path):
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
    ran = run(tmp_path, TRAIN + tidy(script), nproc=2)
    assert [output.splitlines() for output in ran.outputs] == [["100 200"] * 5 + ["end"]] * 2
    for recording in recordings(ran):
        training = [one for one in recording.passes if one.training]
        assert [one.drawn for one in training] == [8, 8, 8, 2, 2]
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
    recording = recorded(tmp_path, TRAIN + tidy(script), nproc=2)
    assert recording.passes[0].drawn == drawn
    assert recording.trailing is None or not recording.trailing.backwards


def test_batches_taken_by_next_are_not_withheld(tmp_path):
    script = """
    batches = iter(loader)
    for i in range(len(loader)):
        x, y = next(batches)
    print(i)
    """
    ran = run(tmp_path, TRAIN + tidy(script))
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
    ran = run(tmp_path, TRAIN + tidy(script), nproc=3)
    assert ran.outputs == ("printed",) * 3
    for recording in recordings(ran):
        assert (recording.exit.how, recording.exit.status, recording.step_count) == ("shortened", 0, 60)
        assert recording.trailing is None or not recording.trailing.backwards
    assert ran.trace.shortened is not None
    assert ran.trace.shortened.steps == 60
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
    recording = recorded(tmp_path, TRAIN + tidy(script), nproc=2)
    assert (recording.exit.how, recording.step_count) == ("shortened", 60)
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


def tidy(script: str) -> str:
    return "\n".join(line[4:] for line in script.splitlines()) + "\n"

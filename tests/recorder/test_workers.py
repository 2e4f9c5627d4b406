"""DataLoader workers under the recorder."""

import pytest

from tests.recorder.scripts import recorded, recordings, run

pytestmark = pytest.mark.slow

STREAM = """
class Stream(IterableDataset):
    def __iter__(self):
        for number in range(12):
            yield torch.tensor([float(number)]) + {noise}
for epoch in range(2):
    for batch in DataLoader(Stream(), batch_size=3, num_workers=2):
        pass
"""


def test_what_workers_begin_with_and_load_first(tmp_path):
    first, second = (one.workers for one in recorded(tmp_path, STREAM.format(noise=0)).passes)
    assert [worker.worker for worker in first] == [0, 1]
    assert len({worker.seeds["torch"] for worker in (*first, *second)}) == 4
    assert len({worker.seeds["python"] for worker in (*first, *second)}) == 4
    # Neither takes its part of the stream.
    assert first[0].samples[:6] == first[1].samples[:6]
    assert len(set(first[0].samples)) == 12
    assert {worker.drew for worker in first} == {()}


@pytest.mark.parametrize(("noise", "drew"), [("torch.rand(1)", ("torch",)), ("random.random()", ("python",))])
def test_which_random_stream_a_worker_draws_from(tmp_path, noise, drew):
    (first, *_) = recorded(tmp_path, STREAM.format(noise=noise)).passes
    assert {worker.drew for worker in first.workers} == {drew}
    assert not {*first.workers[0].samples} & {*first.workers[1].samples}


def test_workers_of_a_pass_that_was_cut_short_end(tmp_path):
    script = """
    import multiprocessing
    data = TensorDataset(torch.arange(400))
    for epoch in range(5):
        for (x,) in DataLoader(data, batch_size=2, num_workers=2):
            pass
        print(len(multiprocessing.active_children()))
    loader = DataLoader(data, batch_size=2, num_workers=2, persistent_workers=True, shuffle=True)
    for epoch in range(5):
        for (x,) in loader:
            print(x.numel(), end=" ")
        print(len(multiprocessing.active_children()))
    del loader
    print(len(multiprocessing.active_children()))
    """
    ran = run(tmp_path, script, batches=8)
    assert ran.outputs[0].splitlines() == [*"00000", *["2 2 2 2 2 2 2 2 2"] * 5, "0"]
    (recording,) = recordings(ran)
    assert [one.ended for one in recording.passes] == ["shortened"] * 10


def test_of_workers_that_come_with_every_epoch_the_first_are_recorded(tmp_path):
    script = """
    loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=2, num_workers=2)
    for epoch in range(44):
        for batch in loader:
            pass
    """
    recording = recorded(tmp_path, script)
    assert [worker.worker for worker in recording.passes[0].workers] == [0, 1]
    assert 64 <= len(recording.children) < 80

"""DataLoaders under the recorder: each fact arrives, and the script draws what it would draw without."""

import pytest

from ddpdoctor.job.command import RECORD
from ddpdoctor.recorder.events.data import LoaderMade
from ddpdoctor.trace.reader import read_run
from tests.recorder.scripts import recorded, run

pytestmark = pytest.mark.slow

LOADERS = """
data = TensorDataset(torch.arange(40.0).reshape(40, 1), torch.arange(40))
train, held = random_split(data, [30, 10])
sampler = DistributedSampler(train, num_replicas=2, rank=1)
loader = DataLoader(train, batch_size=4, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        pass
for x, y in DataLoader(held, batch_size=5):
    break
"""


def test_loaders_samplers_and_passes(tmp_path):
    recording = recorded(tmp_path, LOADERS, full=True)
    first, second = recording.loaders
    assert (first.dataset, first.samples, first.batch_size, first.at.line) == ("TensorDataset", 30, 4, 13)
    sampler = first.sampler
    assert (sampler.name, sampler.rank, sampler.replicas, sampler.total) == ("DistributedSampler", 1, 2, 30)
    assert (sampler.shuffle, sampler.seed, sampler.at.line) == (True, 0, 12)
    assert first.content == second.content is not None
    one, two, held = recording.passes
    assert (one.sampler.epoch, two.sampler.epoch, held.loader) == (0, 1, 1)
    assert (one.at.line, one.number, two.number, one.batches, one.drawn) == (16, 0, 1, 4, 4)
    assert (one.ended, held.ended, held.drawn) == ("exhausted", "left", 1)
    assert len(one.indices) == 15
    assert one.indices != two.indices
    assert (len(one.content), one.length) == (4, 4)
    assert len({*one.content, *two.content}) == 8


def test_indices_lie_in_the_innermost_dataset(tmp_path):
    recording = recorded(tmp_path, LOADERS)
    (split,) = recording.splits
    assert (split.samples, split.at.line, split.loaders) == (40, 11, (0, 1))
    assert sorted([*split.parts[0], *split.parts[1]]) == list(range(40))
    assert set(recording.passes[0].indices) < set(split.parts[0])
    assert list(recording.passes[-1].indices) == list(split.parts[1])


def test_subsets_by_hand_are_a_split(tmp_path):
    script = """
    data = TensorDataset(torch.arange(10))
    parts = Subset(data, [1, 2, 3]), Subset(data, torch.tensor([5, 6]))
    list(DataLoader(parts[1]))
    """
    (split,) = recorded(tmp_path, script).splits
    assert [tuple(part) for part in split.parts] == [(1, 2, 3), (5, 6)]
    assert split.loaders == (None, 0)


def test_a_long_order_lies_beside_the_record(tmp_path):
    script = """
    data = TensorDataset(torch.arange(5000))
    for epoch in range(3):
        for (x,) in DataLoader(data, batch_size=8, shuffle=epoch > 0):
            print(*x.tolist())
    """
    recording = recorded(tmp_path, script)
    in_order, *shuffled = recording.passes
    assert list(in_order.indices) == list(range(5000))
    assert all(sorted(one.indices) == list(range(5000)) for one in shuffled)
    printed = run(tmp_path, script, name="plain.py", full=True).outputs[0].split()
    drawn = [number for one in recording.passes for number in one.indices[:64]]
    assert [int(number) for number in printed[5000:5064]] == drawn[64:128]


def test_a_pass_whose_order_cannot_be_foreseen_is_learnt_from_what_is_drawn(tmp_path):
    script = """
    data = TensorDataset(torch.arange(10))
    for x in DataLoader(data, batch_size=2, sampler=(number for number in range(7))):
        pass
    """
    (one,) = recorded(tmp_path, script).passes
    assert (one.indices, one.batches, one.drawn) == (tuple(range(7)), 4, 4)


def test_a_stream(tmp_path):
    script = """
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(6.0))
    for x in DataLoader(Stream(), batch_size=2):
        pass
    """
    recording = recorded(tmp_path, script)
    (loader,), (one,) = recording.loaders, recording.passes
    assert (loader.streams, loader.samples, loader.sampler) == (True, None, None)
    assert (one.indices, one.batches, one.drawn, len(one.content)) == (None, None, 3, 3)


def test_the_sampler_of_a_loader_that_another_took_the_place_of(tmp_path):
    script = """
    data = TensorDataset(torch.arange(10))
    given = DataLoader(data, sampler=WeightedRandomSampler(torch.ones(10), 10))
    other = DataLoader(data, sampler=DistributedSampler(data))
    wrapped = DataLoader(TensorDataset(torch.arange(4)), sampler=RandomSampler(range(4)))
    again = DataLoader(wrapped.dataset, batch_sampler=BatchSampler(wrapped.sampler, 2, False))
    for loader in (other, again):
        list(loader)
    """
    recording = recorded(tmp_path, script)
    given = [one.sampler for one in recording.events(LoaderMade)]
    assert given == ["WeightedRandomSampler", "DistributedSampler", "RandomSampler", "BatchSampler"]
    assert [(one.made, one.holds) for one in recording.loaders] == [(1, (1,)), (3, (2, 3))]


def test_a_sampler_that_another_loader_wraps_is_not_replaced_where_its_own_loader_is_gone(tmp_path):
    script = """
    data = TensorDataset(torch.arange(10))
    for fold in range(2):
        parts = [DataLoader(data, sampler=SubsetRandomSampler(part)) for part in ([1, 2, 3], [4, 5])]
        parts = [DataLoader(data, batch_sampler=BatchSampler(part.sampler, 2, False)) for part in parts]
        for part in parts:
            list(part)
    """
    loaders = recorded(tmp_path, script).loaders
    assert {made for one in loaders for made in (one.made, *one.holds)} == set(range(8))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_what_a_script_draws_is_what_it_draws_without_the_recorder(tmp_path, workers, persistent):
    if persistent and not workers:
        pytest.skip("there is nothing to persist")
    script = f"""
    class Noisy(Dataset):
        def __len__(self):
            return 21
        def __getitem__(self, place):
            return place + torch.rand(()) + random.random()
    class Own(Sampler):
        def __init__(self):
            self.order = list(range(21))
        def __iter__(self):
            random.shuffle(self.order)
            for place in self.order:
                if torch.rand(()) < 0.8:
                    yield place
    options = dict(batch_size=4, num_workers={workers}, persistent_workers={persistent})
    loaders = [DataLoader(Noisy(), shuffle=True, **options), DataLoader(Noisy(), sampler=Own(), **options)]
    random.seed(1)
    for epoch in range(2):
        for loader in loaders:
            for batch in loader:
                print(batch.tolist())
            print(next(iter(loader)).tolist(), torch.rand(()).item(), random.random())
    """
    seen = run(tmp_path, script, full=True)
    plain = run(tmp_path, script, name="plain.py", record=False)
    assert seen.outputs == plain.outputs
    assert seen.finals == plain.finals


def test_a_sampler_is_iterated_as_often_as_the_script_does(tmp_path):
    script = """
    class Eager(Sampler):
        calls = 0
        def __iter__(self):
            Eager.calls += 1
            yield from (range(4) if Eager.calls % 2 else range(4, 8))
    for x in DataLoader(TensorDataset(torch.arange(8)), batch_size=2, sampler=Eager()):
        print(x)
    """
    (one,) = recorded(tmp_path, script).passes
    assert list(one.indices) == [0, 1, 2, 3]


def test_a_loader_that_was_made_before_the_ranks_were_forked(tmp_path):
    script = """
    import multiprocessing
    data = TensorDataset(torch.arange(10))
    loader = DataLoader(data, sampler=RandomSampler(data))
    def iterate():
        for x in loader:
            pass
    def rank(number):
        dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=number, world_size=2)
        iterate()
        dist.barrier()  # who left now could break the connection of the other, which is still making it
    iterate()
    dist.destroy_process_group()
    children = [multiprocessing.get_context("fork").Process(target=rank, args=(n,)) for n in range(2)]
    [child.start() for child in children]
    [child.join() for child in children]
    """
    ran = run(tmp_path, script)
    child = read_run(ran.folder.parent / "run" / RECORD).ranks[1]
    (loader,), (one,) = child.loaders, child.passes
    assert (loader.at.line, loader.sampler.at.line, one.at.line, one.loader) == (12, 12, 14, loader.index)

"""A sampler of the script's may do anything while it is iterated: under the recorder it does what it does without.

At full length, the effects are those of the plain run, in number and order. In a run that is shortened, a pass of a
loop that only its end leaves has all effects of the plain pass; of any other loop, a beginning of them.
"""

import functools
import tempfile
from pathlib import Path

import pytest

from tests.recorder.scripts import run
from tests.support.forked import Ran

SCRIPT = """
import itertools, json, socket, threading
import numpy
GLOBAL, ANSWERED = [], []
os.mkdir("removed")
for number in range(6000):
    open(f"removed/{number}", "w").close()
server = socket.create_server(("127.0.0.1", 0))
def serve():
    connection, _ = server.accept()
    for line in connection.makefile():
        ANSWERED.append(line)
        connection.sendall(b"-")
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(server.getsockname())

class Effects:
    def __init__(self):
        self.count, self.generator = 0, torch.Generator().manual_seed(5)
    def have(self, what):
        drawn = torch.rand(()).item(), torch.rand((), generator=self.generator).item()
        drawn += random.random(), numpy.random.rand()
        with open("effects", "a") as file:
            print(what, *drawn, file=file)
        os.remove(f"removed/{self.count}")
        self.count += 1
        GLOBAL.append(what)
        os.environ["DRAWN"] = str(self.count)
        client.sendall(f"{what}\\n".encode())
        client.recv(1)
effects = Effects()

class Own(Sampler):
    def __iter__(self):
        effects.have("begin")
        try:
            for number in range(29):
                effects.have(number)
                yield number
        finally:
            effects.have("end")
    def __len__(self):
        effects.have("length of the sampler")
        return 29
class Iterator:
    left = 29
    def __iter__(self):
        return self
    def __next__(self):
        effects.have("next")
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left
class Iterates(Own):
    def __iter__(self):
        return Iterator()
class Batches(Sampler):
    def __iter__(self):
        for number in range(14):
            effects.have(number)
            yield [number, number + 1]
class Wraps(Sampler):
    def __init__(self, sampler):
        self.sampler = sampler
    def __iter__(self):
        return (28 - number for number in self.sampler)
class Holds(Dataset):
    def __init__(self):
        self.data = torch.arange(29.0).reshape(29, 1)
    def __getitem__(self, place):
        return (self.data[place],)
    def __len__(self):
        effects.have("length of the dataset")
        return len(self.data)
class Indices:
    def __getitem__(self, place):
        effects.have(place)
        return place
    def __len__(self):
        effects.have("length of the indices")
        return 29
class Places(Indices):
    def __getitem__(self, place):
        return place
class Shy(Own):
    @property
    def rank(self):
        effects.have("rank")
        return 0
    def __getattr__(self, name):
        effects.have(name)
        raise AttributeError(name)

data = TensorDataset(torch.arange(29.0).reshape(29, 1))
SAMPLERS = {
    "own": lambda: (data, dict(sampler=Own(), batch_size=2)),
    "iterator": lambda: (data, dict(sampler=Iterates(), batch_size=2)),
    "no batches": lambda: (data, dict(sampler=Own(), batch_size=None)),
    "batches": lambda: (data, dict(batch_sampler=Batches())),
    "batches of torch": lambda: (data, dict(batch_sampler=BatchSampler(Own(), 2, True))),
    "wrapped": lambda: (data, dict(sampler=Wraps(Own()), batch_size=2)),
    "divided": lambda: (Holds(), dict(sampler=DistributedSampler(Holds(), 2, 1), batch_size=1)),
    "random": lambda: (Holds(), dict(shuffle=True, batch_size=2)),
    "in order": lambda: (Holds(), dict(batch_size=2)),
    "part": lambda: (Subset(Holds(), Places()), dict(batch_size=2)),
    "subset": lambda: (data, dict(sampler=SubsetRandomSampler(Indices()), batch_size=2)),
    "shy": lambda: (data, dict(sampler=Shy(), batch_size=2)),
}
def every(loader):
    for (x,) in loader:
        train(x)
def counted(loader):
    for number, (x,) in enumerate(loader):
        train(x)
def generated(loader):
    def batches():
        for batch in loader:
            yield batch
    for (x,) in batches():
        train(x)
def left_early(loader):
    for number, (x,) in enumerate(loader):
        train(x)
        if number == 9:
            break
def left_by_return(loader):
    for (x,) in loader:
        train(x)
        if x[0] < 0:
            return
def cut_by_slice(loader):
    for (x,) in itertools.islice(loader, 11):
        train(x)
def by_hand(loader):
    batches = iter(loader)
    for _ in range(5):
        next(batches)
def side_by_side(loader):
    for (x,), number in zip(loader, range(10)):
        train(x)

model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
def train(x):
    model(x.reshape(-1, 1)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
random.seed(0)
numpy.random.seed(0)
def have_effects(loop, name, worker_options):
    with open("effects", "a") as file:
        print("pass none yet", file=file)
    held, options = SAMPLERS[name]()
    loader = DataLoader(held, **options, **worker_options)
    for epoch in range(EPOCHS):
        with open("effects", "a") as file:
            print("pass", loop.__name__, name, epoch, file=file)
        loop(loader)
try:
    for loops, names in CASES:
        for loop in loops:
            for name in names:
                have_effects(loop, name, WORKERS)
finally:
    with open("ended", "w") as file:
        json.dump([effects.count, GLOBAL, ANSWERED, len(os.listdir("removed")), os.environ.get("DRAWN")], file)
"""
pytestmark = pytest.mark.slow

WORKERS = {
    "alone": "{}",
    "workers": "dict(num_workers=2)",
    "persistent": "dict(num_workers=2, persistent_workers=True)",
}
MANY = "[every], [name for name in SAMPLERS if name != 'random']"
"""RandomSampler asks for a length at its end, too, and is not drawn to it: its order is known."""
WHOLE = "[counted, generated], ['own', 'batches']"
PARTLY = "[left_early, left_by_return, cut_by_slice, by_hand, side_by_side], ['own', 'random']"
PLAIN = [("alone", {}), ("workers", {}), ("persistent", {"rehearse": True})]


def script(workers: str, epochs: int, *cases: str) -> str:
    before, begin, after = SCRIPT.partition("try:\n    for loops")
    chosen = f"WORKERS, EPOCHS, CASES = {WORKERS[workers]}, {epochs}, [{', '.join(f'({case})' for case in cases)}]\n"
    return f"{before}{chosen}{begin}{after}"


@functools.cache
def plain(text: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        return effects(run(Path(folder), text, record=False))


def effects(ran: Ran) -> tuple[str, str]:
    return (ran.folder / "effects").read_text(), (ran.folder / "ended").read_text()


def passes(log: str) -> list[list[str]]:
    """What happened in each pass, without the numbers drawn, and without the end, which the garbage collector times."""
    each = [part.splitlines() for part in log.split("pass ")[1:]]
    named = [[head, *(line.rsplit(" ", 4)[0] for line in lines)] for head, *lines in each]
    return [[what for what in one if what != "end"] for one in named]


@pytest.mark.parametrize(("workers", "options"), PLAIN, ids=str)
def test_at_full_length_effects_are_those_of_the_plain_run(tmp_path, workers, options):
    text = script(workers, 2, MANY if workers == "alone" else WHOLE, PARTLY)
    assert effects(run(tmp_path, text, full=True, **options)) == plain(text)


@pytest.mark.parametrize(("workers", "options"), PLAIN, ids=str)
def test_a_shortened_pass_has_all_effects_where_only_its_end_leaves_the_loop(tmp_path, workers, options):
    text = (
        script(workers, 4, MANY, WHOLE) if workers == "alone" and not options else script(workers, 2, WHOLE)
    )
    ran = run(tmp_path, text, batches=8, **options)
    assert effects(ran) == plain(text)
    drawn = [one for rank in ran.trace.ranks for one in rank.recording.passes]
    assert all(one.drawn <= 8 for one in drawn)
    assert all(one.indices is not None and one.batches > 8 for one in drawn)


@pytest.mark.parametrize("workers", ["alone", "persistent"])
def test_a_shortened_pass_of_another_loop_has_a_beginning_of_the_effects(tmp_path, workers):
    text = script(workers, 3, PARTLY)
    (shortened, _), (whole, _) = effects(run(tmp_path, text, batches=8)), plain(text)
    pairs = list(zip(passes(shortened), passes(whole), strict=True))
    assert len(pairs) == 40
    assert all(short == long[: len(short)] for short, long in pairs)
    assert any(len(short) < len(long) for short, long in pairs)
    assert shortened.count("\nend") == whole.count("\nend")

"""The line that makes a dataset another one in each process, read in the script's files."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.dataset_draws import dataset_draw

SHUFFLED_LIST = """\
paths = read()
random.shuffle(paths)  # the draw
dataset = Images(paths)
loader = DataLoader(dataset, sampler=sampler)  # the loader
"""
GENERATED = """\
class Toy(Dataset):
    def __init__(self, size):
        self.data = torch.rand(size)  # the draw

    def __getitem__(self, index):
        return self.data[index] + torch.randn(1)

def main():
    data = Toy(9)
    return DataLoader(  # the loader
        data, sampler=sampler)
"""
GIVEN_BY_THE_CALLER = """\
def load(path):
    lines = open(path).read().split()
    np.random.shuffle(lines)  # the draw
    return lines

def prepare(batch_size, dataset):
    return DataLoader(dataset, batch_size)  # the loader

loader = prepare(8, dataset=load("x"))
"""
RETURNED_WITH_OTHERS = """\
def made():
    data = Toy(9)
    model = Net(torch.randn(3))
    return data, model

class Toy:
    def __init__(self, size):
        self.data = [torch.rand(20) for _ in range(size)]  # the draw

def prepare(dataset, batch_size):
    return DataLoader(dataset, batch_size=batch_size)  # the loader

def main():
    dataset, model = made()
    prepare(dataset, 8)
"""
CHOSEN_FROM_A_TABLE = """\
def cifar(args):
    labeled, unlabeled = split(args)
    return Images(labeled), Images(unlabeled)

def split(args):
    labeled = pick(args.count)
    np.random.shuffle(labeled)  # the draw
    return labeled, range(args.count)

GETTERS = {"cifar": cifar, "other": None}
labeled_data, unlabeled_data = GETTERS[args.dataset](args)
loader = DataLoader(labeled_data, batch_size=4)  # the loader
"""
ORDER_OF_A_SET = """\
class Clips(Dataset):
    def __init__(self, rows):
        assert len(rows) in {8, 9}
        self.names = [name for name in set(rows)]  # the draw

loader = DataLoader(dataset=Clips(rows))  # the loader
"""
IMPORTED = """\
from parts import Images
loader = DataLoader(Images("x"))  # the loader
"""
LISTED_AND_SHUFFLED_ALIKE = """\
random.seed(0)
paths = os.listdir("x")  # the draw
random.shuffle(paths)
loader = DataLoader(Images(paths))  # the loader
"""
SEEDED = """\
paths = sorted(glob.glob("x"))
order = torch.randperm(9, generator=generator)
random.Random(0).shuffle(paths)
weights = torch.randn(3)
loader = DataLoader(Images(paths, order))  # the loader
"""


@pytest.mark.parametrize(
    "script",
    [
        SHUFFLED_LIST,
        GENERATED,
        GIVEN_BY_THE_CALLER,
        RETURNED_WITH_OTHERS,
        CHOSEN_FROM_A_TABLE,
        ORDER_OF_A_SET,
        LISTED_AND_SHUFFLED_ALIKE,
    ],
    ids=[
        "a list that is shuffled",
        "generated",
        "given by the caller",
        "returned with others",
        "chosen from a table",
        "the order of a set",
        "listed, and shuffled alike",
    ],
)
def test_the_line_that_draws(tmp_path, script):
    draw = read(tmp_path, script)
    assert draw
    assert draw.line == line_of(script, "# the draw")


def test_a_class_of_another_file(tmp_path):
    module = 'class Images:\n    def __init__(self, path):\n        self.files = glob.glob(f"{path}/*")\n'
    (tmp_path / "parts.py").write_text(module)
    assert read(tmp_path, IMPORTED) == Where(str(tmp_path / "parts.py"), 3, "__init__")


def test_what_is_the_same_in_every_process_is_no_draw(tmp_path):
    assert read(tmp_path, SEEDED) is None


def test_a_name_that_is_assigned_again_and_again(tmp_path):
    steps = "".join(f"data = data.map(step_{number})\n" for number in range(40))
    script = f"data = load(torch.randn(3))  # the draw\n{steps}loader = DataLoader(data)  # the loader\n"
    draw = read(tmp_path, script)
    assert draw
    assert draw.line == line_of(script, "# the draw")


def read(folder: Path, script: str) -> Where | None:
    file = folder / "train.py"
    file.write_text(script)
    return dataset_draw(Where(str(file), line_of(script, "# the loader")), str(file))


def line_of(script: str, comment: str) -> int:
    return next(number for number, line in enumerate(script.splitlines(), 1) if comment in line)

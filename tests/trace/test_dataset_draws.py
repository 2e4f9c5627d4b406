"""The line that makes a dataset another one in each process, read in the script's files."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.dataset_draws import Draw, dataset_draw, draw_before_cut

T = TypeVar("T")

HEAD = (
    "import glob, os, random; import numpy as np; import torch; import torch.distributed as dist; "
    "from itertools import islice; from torch.utils.data import DataLoader, Dataset, Subset\n"
)
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
    module = 'import glob\nclass Images:\n    def __init__(self, path):\n        self.files = glob.glob(f"{path}/*")\n'
    (tmp_path / "parts.py").write_text(module)
    assert read(tmp_path, IMPORTED) == Where(str(tmp_path / "parts.py"), 4, "Images.__init__")


def test_what_is_the_same_in_every_process_is_no_draw(tmp_path):
    assert read(tmp_path, SEEDED) is None


def test_a_name_that_is_assigned_again_and_again(tmp_path):
    steps = "".join(f"data = data.map(step_{number})\n" for number in range(40))
    script = f"data = load(torch.randn(3))  # the draw\n{steps}loader = DataLoader(data)  # the loader\n"
    draw = read(tmp_path, script)
    assert draw
    assert draw.line == line_of(script, "# the draw")


SHUFFLED_AND_CUT = """\
data = torch.randn(90, 3)
names = list(range(len(data)))
random.shuffle(names)  # the draw
rank, world_size = dist.get_rank(), dist.get_world_size()
{cut}
loader = DataLoader(Images(part), shuffle=True)  # the loader
"""
CUTS = {
    "every n-th": "part = names[rank::world_size]",
    "a run": "per = len(names) // world_size\npart = names[rank * per : (rank + 1) * per]",
    "a run with names": "start = rank * 9\nend = start + 9\npart = names[start:end]",
    "one of several": "parts = np.array_split(names, world_size)\npart = parts[rank]",
    "an index": "mine = names[rank::world_size]\npart = data[mine]",
    "islice": "part = list(islice(names, rank, None, world_size))",
    "by modulo": "part = [name for n, name in enumerate(names) if n % world_size == rank]",
    "by a range": "part = [names[n] for n in range(rank, len(names), world_size)]",
}
CUT_BY_A_CLASS = """\
class Images(Dataset):
    def __init__(self, paths, rank, count):
        self.paths = paths[rank::count]

def main():
    paths = read()
    np.random.default_rng(dist.get_rank()).shuffle(paths)  # the draw
    return DataLoader(Images(paths, dist.get_rank(), 3))  # the loader
"""
CUT_BY_A_FUNCTION = """\
def part_of(order):
    return order[dist.get_rank() :: dist.get_world_size()]

loader = DataLoader(Subset(data, part_of(torch.randperm(90))))  # the draw, the loader
"""
OWN_GENERATOR = """\
class Images(Dataset):
    def __init__(self, rank):
        self.rng = random.Random()
        order = list(range(90))
        self.rng.shuffle(order)  # the draw
        self.order = order[rank::3]

loader = DataLoader(Images(dist.get_rank()))  # the loader
"""


@pytest.mark.parametrize(
    "script",
    [
        *(SHUFFLED_AND_CUT.format(cut=cut) for cut in CUTS.values()),
        CUT_BY_A_CLASS,
        CUT_BY_A_FUNCTION,
        OWN_GENERATOR,
    ],
    ids=[*CUTS, "cut by a class", "cut by a function", "a generator of its own"],
)
def test_the_order_out_of_which_each_rank_cuts_its_part(tmp_path, script):
    draw = read(tmp_path, script, draw_before_cut)
    assert draw
    assert (draw.where.line, draw.kind) == (line_of(script, "# the draw"), Draw.RANDOM)


@pytest.mark.parametrize(
    "cut",
    [
        "part = names",
        "part = names[:30]",
        "part = names[: rank * 9] + names[(rank + 1) * 9 :]",
        "part = [name for name in names if name.startswith(prefix)]",
        "part = sorted(names)[rank::world_size]",
    ],
    ids=["all", "the first", "all but a fold", "chosen", "sorted before"],
)
def test_what_is_no_part_of_the_order_of_a_rank(tmp_path, cut):
    assert read(tmp_path, SHUFFLED_AND_CUT.format(cut=cut), draw_before_cut) is None


def test_a_part_that_is_shuffled_afterwards(tmp_path):
    script = """\
names = names[rank::world_size]
random.shuffle(names)
loader = DataLoader(Images(names))  # the loader
"""
    assert read(tmp_path, script, draw_before_cut) is None


@pytest.mark.parametrize(
    "shuffle",
    [
        "random.Random(0).shuffle(names)",
        "np.random.default_rng(0).shuffle(names)",
        "names = names[torch.randperm(9, generator=generator)]",
        "random.seed(3)\nrandom.shuffle(names)",
        "names = torch.rand(90)",
        "random.shuffle(names)\ndist.broadcast_object_list(names)",
    ],
)
def test_an_order_that_is_the_same_on_every_rank(tmp_path, shuffle):
    script = SHUFFLED_AND_CUT.format(cut=CUTS["every n-th"]).replace(
        "random.shuffle(names)  # the draw", shuffle
    )
    assert read(tmp_path, script, draw_before_cut) is None


def test_the_stream_of_a_draw(tmp_path):
    scripts = {
        "python": "random.shuffle(names)",
        "numpy": "np.random.shuffle(names)",
        None: "rng.shuffle(names)",
    }
    for stream, shuffle in scripts.items():
        script = "rng = random.Random()\n" + SHUFFLED_AND_CUT.format(cut=CUTS["every n-th"])
        draw = read(tmp_path / str(stream), script.replace("random.shuffle(names)", shuffle), draw_before_cut)
        assert draw
        assert draw.stream == stream


def read(folder: Path, script: str, look: Callable[[Where, str], T] = dataset_draw) -> T:
    folder.mkdir(exist_ok=True)
    file = folder / "train.py"
    file.write_text(f"{HEAD}{script}")
    return look(Where(str(file), line_of(script, "the loader")), str(file))


def line_of(script: str, comment: str) -> int:
    return next(number for number, line in enumerate(script.splitlines(), 2) if comment in line)


RENAMED = """\
class Images(Dataset):
    def __init__(self, found, mine, of_all):
        self.kept = found[mine::of_all]

def shuffle(values):
    return values

def mixed(these):
    random.shuffle(these)  # the draw

def main():
    a = list(range(90))
    mixed(a)
    return DataLoader(Images(a, dist.get_rank(), 3))  # the loader
"""


def test_names_tell_nothing_of_a_draw(tmp_path):
    draw = read(tmp_path, RENAMED, draw_before_cut)
    assert draw is not None
    assert draw.where.line == line_of(RENAMED, "# the draw")


@pytest.mark.parametrize(
    "change",
    [("random.shuffle(these)", "shuffle(these)"), ("dist.get_rank()", "lora_rank")],
    ids=["a function of that name", "a number called rank"],
)
def test_names_make_no_draw_and_no_cut(tmp_path, change):
    script = "lora_rank = 8\n" + RENAMED.replace(*change)
    assert read(tmp_path, script, draw_before_cut) is None


def test_a_stream_that_every_process_seeds_by_a_setting(tmp_path):
    script = (
        "import argparse; args = argparse.ArgumentParser().parse_args()\nrandom.seed(args.seed)\n" + RENAMED
    )
    assert read(tmp_path / "alike", script, draw_before_cut) is None
    assert (
        read(tmp_path / "apart", script.replace("args.seed", "dist.get_rank()"), draw_before_cut) is not None
    )

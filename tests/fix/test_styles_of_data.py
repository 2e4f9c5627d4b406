"""Patches of data, seeds and files in scripts as users write them: helper functions, loops, loggers, checkpoints."""

import pytest

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patches
from ddpdoctor.model import Kind, Where
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.trace.data import Pass
from tests.fix.cases import IMPORTS, NOTHING, changed, finding_at, patched
from tests.support.recordings import recording, replace, trace


def trained_on(line, loop=None):
    """A run that trained on batches of the DataLoader that is made at this line, in a loop at the next or another."""
    loader = Loader(0, Where("train.py", line), "TensorDataset", 16, batch_size=4)
    pass_ = Pass(
        0,
        0,
        Where("train.py", loop or line + 1),
        0.1,
        1.9,
        None,
        tuple(range(16)),
        4,
        4,
        "exhausted",
        training=True,
    )
    return trace({0: replace(recording(0), loaders=(loader,), passes=(pass_,), wrappers=())})


def test_a_method_of_the_same_name_is_not_that_function(tmp_path):
    text = """\
    def train(loader):
        for x in loader:  # here
            step(x)
    for epoch in range(3):
        model.train()
        train(train_loader)
    """
    assert patched("set_epoch", text, tmp_path) == changed(
        text, ("    model.train()", "    train_loader.sampler.set_epoch(epoch)\n    model.train()")
    )


@pytest.mark.parametrize(
    ("loader", "sampler"),
    [("tqdm(train_loader)", "train_loader.sampler"), ("train_loader", "train_loader.sampler")],
)
def test_a_progress_bar_has_no_sampler(loader, sampler, tmp_path):
    text = f"""\
for epoch in range(3):
    bar = {loader}
    for batch in bar:  # here
        step(batch)
"""
    assert f"    {sampler}.set_epoch(epoch)\n" in patched("set_epoch", text, tmp_path)


def test_a_condition_by_a_local_rank_that_lets_all_ranks_write_is_replaced(tmp_path):
    text = """\
    import argparse
    args = argparse.ArgumentParser().parse_args()
    if args.local_rank == 0:
        torch.save(state, path)  # here
    """
    after = patched("write_on_rank_0", text, tmp_path)
    assert after == changed(text, ("args.local_rank == 0", "dist.get_rank() == 0"))


def test_iterators_that_are_begun_anew_are_counted(tmp_path):
    text = """\
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler)
    batches = iter(loader)
    for step in range(24):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)  # here
            batch = next(batches)
    """
    assert patched("set_epoch", text, tmp_path) == changed(
        text,
        ("for step", "epoch = 0\nfor step"),
        (
            "        batches = iter(loader)  # here",
            "        epoch += 1\n        sampler.set_epoch(epoch)\n        batches = iter(loader)  # here",
        ),
    )


def test_workers_do_not_wait_for_ranks(tmp_path):
    text = "class Data:\n    def __getitem__(self, i):\n        torch.save(i, 'a.pt')  # here\n"
    with pytest.raises(CannotPatch, match="DataLoader workers"):
        patched("write_on_rank_0", text, tmp_path)


def test_what_is_written_before_any_process_group_is_written_on_each_host(tmp_path):
    text = f"{IMPORTS}open('names.txt', 'w')  # here\n"
    (tmp_path / "train.py").write_text(text)
    finding = replace(finding_at(text), about=Kind.PATH.of("names.txt"))
    title = patches()["write_on_each_host"].apply(Case(finding, NOTHING, Project(tmp_path)))
    assert title == "written on one rank of each host, with a barrier behind it"


def test_a_log_file_has_rank_0_by_its_name_in_the_function(tmp_path):
    text = """\
    def get_logger(folder, rank):
        logger = logging.getLogger("train")
        logger.addHandler(logging.FileHandler(folder + "/train.log", mode="w"))  # here
        return logger
    class Runner:
        def __init__(self, folder):
            self.rank = dist.get_rank()
            self.log = get_logger(folder, self.rank)
    """
    handler = '    logger.addHandler(logging.FileHandler(folder + "/train.log", mode="w"))  # here\n'
    after = changed(text, (handler, f"    if rank == 0:\n    {handler}"))
    assert patched("write_on_each_host", text, tmp_path) == after


def test_every_generator_that_the_script_seeds_is_seeded_by_the_rank(tmp_path):
    text = """\
    import random
    import numpy as np
    def seed_all(seed):
        random.seed(seed)
    dist.init_process_group("gloo")
    seed_all(7)
    np.random.seed(3)
    model = DDP(Net())
    train(model)  # here
    """
    wrap = "model = DDP(Net())\n"
    seeds = """\
torch.manual_seed(torch.initial_seed() + dist.get_rank())
random.seed((torch.initial_seed() + dist.get_rank()) % 2**32)
np.random.seed(3 + dist.get_rank())
"""
    assert patched("rank_seed", text, tmp_path) == changed(text, (wrap, wrap + seeds))


def test_a_generator_is_seeded_by_the_rank(tmp_path):
    text = """\
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(args.seed)  # here
    model = DDP(Net())
    """
    change = ("manual_seed(args.seed)", "manual_seed(args.seed + dist.get_rank())")
    assert patched("rank_seed", text, tmp_path) == changed(text, change)


def test_a_seed_that_has_a_name_loses_its_rank(tmp_path):
    text = """\
    rank = dist.get_rank()
    seed = 42 + rank
    torch.manual_seed(seed)
    sampler = DistributedSampler(data, seed=seed)  # here
    """
    assert patched("equal_seed", text, tmp_path) == changed(text, ("seed=seed", "seed=42"))


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("random.shuffle(names)", "random.Random(0).shuffle(names)"),
        ("names = random.sample(names, 9)", "names = random.Random(0).sample(names, 9)"),
        ("np.random.shuffle(names)", "np.random.default_rng(0).shuffle(names)"),
        ("names = np.random.permutation(9)", "names = np.random.default_rng(0).permutation(9)"),
        ("permutation(names)", "default_rng(0).permutation(names)"),
        ("rng.shuffle(names)", "np.random.default_rng(0).shuffle(names)"),
        ("names = torch.randperm(9)", "names = torch.randperm(9, generator=torch.Generator().manual_seed(0))"),
        ("a, b = train_test_split(names)", "a, b = train_test_split(names, random_state=0)"),
        ("names = [names[n] for n in torch.randperm(9)]",
         "names = [names[n] for n in torch.randperm(9, generator=torch.Generator().manual_seed(0))]"),
        ("for epoch in range(3): random.shuffle(names)", "for epoch in range(3): random.Random(epoch).shuffle(names)"),
        ("for part in parts: random.shuffle(part)", "for part in parts: random.Random(0).shuffle(part)"),
    ],
)  # fmt: skip
def test_an_order_gets_a_seed(tmp_path, line, after):
    text = f"""\
    import random
    import numpy as np
    from numpy.random import default_rng, permutation
    from sklearn.model_selection import train_test_split
    other = list(names)
    random.shuffle(other)
    rng = np.random.default_rng(dist.get_rank())
    {line}  # here
    mine = names[dist.get_rank()::2]
    """
    assert patched("equal_seed", text, tmp_path) == changed(text, (line, after))


def test_an_order_of_each_epoch_gets_the_epoch_for_a_seed(tmp_path):
    text = """\
    import random
    def files_of(folder, turn):
        random.shuffle(names)  # here
        return names
    for epoch in range(3):
        train(files_of("data", epoch))
    """
    assert "random.Random(turn).shuffle(names)" in patched("equal_seed", text, tmp_path)


@pytest.mark.parametrize(
    "line",
    ["while True: order = torch.randperm(9)", "order = [torch.randperm(9) for _ in range(3)]",
     "order = torch.randperm(9, device='cuda')"],
)  # fmt: skip
def test_an_order_that_would_be_the_same_each_time_gets_no_seed(tmp_path, line):
    with pytest.raises(CannotPatch, match="no random numbers"):
        patched("equal_seed", f"{line}  # here\n", tmp_path)


def test_an_optimizer_that_is_restored_is_not_restored_again(tmp_path):
    text = """\
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    state = torch.load(path)
    net.load_state_dict(state["model"])  # here
    optimizer.load_state_dict(state["optimizer"])
    """
    with pytest.raises(CannotPatch, match="saved and restored already"):
        patched("restore_state", text, tmp_path)


def test_a_condition_of_a_write_gets_one_more(tmp_path):
    text = """\
    from pathlib import Path
    path, epoch = Path("last.pt"), 9
    if args.distributed:
        dist.init_process_group("gloo")
    if not path.exists() or epoch == 9:
        torch.save(net.state_dict(), path)  # here
    """
    after = changed(
        text,
        (
            "if not path.exists() or epoch == 9:",
            "if (not dist.is_initialized() or dist.get_rank() == 0) and (not path.exists() or epoch == 9):",
        ),
        ("# here\n", "# here\nif dist.is_initialized():\n    dist.barrier()\n"),
    )
    assert patched("write_on_rank_0", text, tmp_path) == after


@pytest.mark.parametrize(
    ("shuffle", "condition"),
    [("train", "train"), ("not held_out", "(not held_out)"), ("'x' in kind", "('x' in kind)")],
)
def test_what_is_made_without_shuffling_by_the_same_line_stays_whole(shuffle, condition, tmp_path):
    text = f"""\
    def make(data, {shuffle.split()[-1]}):
        return DataLoader(data, 4, shuffle={shuffle}, drop_last=True)  # here
    for x in make(data, True):
        step(x)
    """
    after = patched("distributed_sampler", text, tmp_path)
    assert f"    sampler = DistributedSampler(data) if {condition} else None\n" in after
    assert "DataLoader(data, 4, sampler=sampler, drop_last=True)" in after


def test_a_sampler_that_may_be_none_is_told_the_epoch_where_it_is_there(tmp_path):
    text = """\
    def run(data, train):
        loader = DataLoader(data, 4, shuffle=train)  # here
        for epoch in range(3):
            for x in loader:
                step(x)
    run(data, True)
    """
    after = patched("distributed_sampler", text, tmp_path, trained_on(5, loop=7))
    assert "        if sampler is not None:\n            sampler.set_epoch(epoch)\n" in after

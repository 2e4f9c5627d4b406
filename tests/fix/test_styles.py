"""Patches in scripts as users write them: helper functions, trainer classes, calls over several lines."""

import textwrap

import pytest

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patch_of
from ddpdoctor.model import Kind, Where
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.trace.data import Pass
from tests.fix.cases import IMPORTS, NOTHING, changed, finding_at, patched
from tests.support.recordings import recording, replace, trace


def test_a_wrap_over_several_lines_moves_before_the_return(tmp_path):
    text = """\
    def build(classes):
        net = Net()
        net = DDP(net,
                  find_unused_parameters=True)
        net.module.head = Head(classes)
        return net
    net = build(3)  # here
    """
    assert patched("wrap_after_change", text, tmp_path) == textwrap.dedent(
        """\
        def build(classes):
            net = Net()
            net.head = Head(classes)
            net = DDP(net,
                      find_unused_parameters=True)
            return net
        net = build(3)  # here
        """
    )


def test_clipping_moves_with_its_condition(tmp_path):
    text = """\
    for i in range(8):
        loss.backward()
        if args.clip:
            clip_grad_norm_(
                model.parameters(), args.clip
            )  # here
        if i % 2:
            optimizer.step()
    """
    assert patched("clip_before_step", text, tmp_path) == textwrap.dedent(
        """\
        for i in range(8):
            loss.backward()
            if i % 2:
                if args.clip:
                    clip_grad_norm_(
                        model.parameters(), args.clip
                    )  # here
                optimizer.step()
        """
    )


def test_a_long_name_of_the_window_is_shortened(tmp_path):
    text = """\
    for i, batch in enumerate(loader):
        loss = model(batch) / args.accumulation
        if (i + 1) % args.accumulation == 0 or i + 1 == len(loader):
            optimizer.step()  # here
    """
    assert patched("window_length", text, tmp_path) == changed(
        text,
        (
            "    loss = model(batch) / args.accumulation\n",
            "    window = args.accumulation\n    length = min(window, len(loader) - i // window * window)\n"
            "    loss = model(batch) / length\n",
        ),
    )


def test_the_module_is_passed_to_the_evaluation_of_one_rank(tmp_path):
    text = """\
    def evaluate(net, batches):
        return [net(batch) for batch in batches]  # here
    model = DDP(Net())
    train(model)
    if dist.get_rank() == 0:
        print(evaluate(model, batches))
    """
    after = patched("call_module", text, tmp_path)
    assert after == changed(text, ("print(evaluate(model,", "print(evaluate(model.module,"))


SHARED = """\
def make(data, train):
    sampler = DistributedSampler(data, shuffle={shuffle})
    return DataLoader(data, sampler=sampler)  # here
for batch in make(data, True):
    step(batch)
"""


def trained_on(line):
    """A run that trained on batches of the DataLoader that is made at this line, in a loop at the next."""
    loader = Loader(0, Where("train.py", line), "TensorDataset", 16, batch_size=4)
    pass_ = Pass(
        0, 0, Where("train.py", line + 1), 0.1, 1.9, None, tuple(range(16)), 4, 4, "exhausted", training=True
    )
    return trace({0: replace(recording(0), loaders=(loader,), passes=(pass_,), wrappers=())})


def test_a_sampler_that_also_divides_training_data_stays_there(tmp_path):
    recorded = trained_on(6)
    after = patched("even_evaluation", SHARED.format(shuffle="train"), tmp_path, recorded)
    assert (
        "sampler = DistributedSampler(data, shuffle=train) if train else "
        "range(dist.get_rank(), len(data), dist.get_world_size())\n" in after
    )
    with pytest.raises(CannotPatch, match="also divides what is trained on"):
        patched("even_evaluation", SHARED.format(shuffle="True"), tmp_path, recorded)


INIT = """\
def init(args):
    dist.init_process_group("gloo")  # here
"""


def wrapped_at(file, line):
    made = recording(0, script="main.py")
    wrapper = replace(made.wrappers[0], at=Where(file, line))
    return trace({0: replace(made, wrappers=(wrapper,), passes=())})


def test_the_group_made_in_another_file_is_destroyed_where_the_script_ends(tmp_path):
    main = """\
    from train import init
    def main(args):
        init(args)
        model = DDP(Net())
        train(model)
    main(parse())
    """
    after = patched("destroy_process_group", INIT, tmp_path, wrapped_at("main.py", 7), main=main)
    assert after == {
        "main.py": changed(main, ("train(model)\n", "train(model)\n    dist.destroy_process_group()\n"))
    }


@pytest.mark.parametrize(
    ("init", "line"),
    [
        ("init_process_group()", "dist.destroy_process_group()"),
        (
            "if alone:\n        return\n    dist.init_process_group()",
            "if dist.is_initialized():\n    dist.destroy_process_group()",
        ),
    ],
)
def test_a_function_that_returns_early_leaves_the_end_to_its_caller(init, line, tmp_path):
    text = f"""\
def setup(alone):
    {init}  # here
def main(alone):
    setup(alone)
    model = DDP(Net())
    for batch in batches:
        if step(batch):
            return
main(alone)
"""
    after = patched("destroy_process_group", text, tmp_path, wrapped_at("train.py", 12))
    assert after == f"{text}{line}\n"


def test_a_group_whose_end_is_not_known_is_left_alone(tmp_path):
    with pytest.raises(CannotPatch, match="init is called 0 times"):
        patched(
            "destroy_process_group", INIT, tmp_path, wrapped_at("main.py", 4), main="model = DDP(Net())\n"
        )


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


def test_device_ids_that_name_another_gpu_than_the_module_s_are_left_alone(tmp_path):
    with pytest.raises(CannotPatch, match="which GPU is meant"):
        patched(
            "device_ids", "model = DDP(net, device_ids=[0])  # here\n", tmp_path, wrapped_at("train.py", 4)
        )


def test_an_import_joins_those_of_its_package(tmp_path):
    text = "from project.data import loaders\nmodel = Net()\noptimizer = SGD(model.parameters())  # here\n"
    (tmp_path / "train.py").write_text(f"import torch\n{text}")
    project = Project(tmp_path)
    patch_of("wrap_model")(Case(finding_at(f"import torch\n{text}"), NOTHING, project))
    ((_, after),) = project.after(project.take()).items()
    assert after.decode().startswith(
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel\nfrom project.data"
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
    if args.local_rank == 0:
        torch.save(state, path)  # here
    """
    after = patched("write_on_rank_0", text, tmp_path)
    assert after == changed(text, ("args.local_rank == 0", "dist.get_rank() == 0"))


def test_a_wrap_that_no_copy_comes_before_is_left_alone(tmp_path):
    text = "model = Net()\nmodel = model.cuda()\nmodel = DDP(model)  # here\naverage = copy(model)\n"
    with pytest.raises(CannotPatch, match="not used before its wrap"):
        patched("wrap_before_copy", text, tmp_path)


def test_the_gpu_of_the_local_rank_stays(tmp_path):
    text = 'device = f"cuda:{local_rank}"\ntorch.cuda.set_device(device)  # here\n'
    with pytest.raises(CannotPatch, match="local rank already"):
        patched("gpu_of_rank", text, tmp_path)


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
    title = patch_of("write_on_each_host")(Case(finding, NOTHING, Project(tmp_path)))
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


def test_a_timeout_that_has_a_name_keeps_it(tmp_path):
    text = """\
    import datetime
    TIMEOUT = datetime.timedelta(seconds=6)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    dist.barrier()  # here
    """
    after = changed(text, ("timedelta(seconds=6)", "timedelta(hours=2)"))
    assert patched("group_timeout", text, tmp_path) == after


def test_a_seed_that_has_a_name_loses_its_rank(tmp_path):
    text = """\
    rank = dist.get_rank()
    seed = 42 + rank
    torch.manual_seed(seed)
    sampler = DistributedSampler(data, seed=seed)  # here
    """
    assert patched("equal_seed", text, tmp_path) == changed(text, ("seed=seed", "seed=42"))


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


def refused_to_load():
    error = Raised("UnpicklingError", "Weights only load failed. GLOBAL argparse.Namespace", 4.0)
    return trace({0: recording(0, raised=error)})


def test_options_are_saved_as_plain_values(tmp_path):
    text = """\
    from dataclasses import dataclass
    @dataclass
    class Config:
        lr: float = 0.1
    def main():
        args, config = parser.parse_args(), Config()
        state = {"model": net.state_dict(), "args": args, "config": config, "best": 0.5}
        torch.save(state, path)
        state = torch.load(path)  # here
    """
    after = changed(
        text,
        ("import dataclass\n", "import asdict, dataclass\n"),
        ('"args": args', '"args": vars(args)'),
        ('"config": config', '"config": asdict(config)'),
    )
    assert patched("plain_contents", text, tmp_path, refused_to_load()) == after


def test_of_another_exception_nothing_is_said(tmp_path):
    with pytest.raises(CannotPatch, match=r"^$"):
        patched("plain_contents", "torch.load(path)  # here\n", tmp_path)


def test_a_condition_of_a_write_gets_one_more(tmp_path):
    text = """\
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


def test_clipping_moves_into_the_line_of_the_step(tmp_path):
    text = """\
    for i, x in enumerate(loader):
        with model.no_sync() if i % 2 == 0 else nullcontext():
            model(x).mean().backward()
            clip_grad_norm_(model.parameters(), 1.0)  # here
        if i % 2: optimizer.step(); optimizer.zero_grad()
    """
    clip = "clip_grad_norm_(model.parameters(), 1.0)"
    after = changed(text, (f"        {clip}  # here\n", ""), ("if i % 2: ", f"if i % 2: {clip}; "))
    assert patched("clip_before_step", text, tmp_path) == after


def test_a_no_sync_by_a_flag_the_wrong_way_round(tmp_path):
    text = """\
    def training_step(inputs, sync):
        with model.no_sync() if sync else nullcontext():
            model(inputs).backward()  # here
    """
    assert patched("sync_last", text, tmp_path) == changed(text, ("if sync else", "if not sync else"))

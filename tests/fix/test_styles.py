"""Patches of the training step, the wrapper and the group in scripts as users write them: helpers, calls over lines."""

import textwrap

import pytest

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.patches import patches
from ddpdoctor.model import Where
from tests.fix.cases import NOTHING, changed, finding_at, patched
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


def test_device_ids_that_name_another_gpu_than_the_module_s_are_left_alone(tmp_path):
    with pytest.raises(CannotPatch, match="which GPU is meant"):
        patched(
            "device_ids", "model = DDP(net, device_ids=[0])  # here\n", tmp_path, wrapped_at("train.py", 4)
        )


def test_an_import_joins_those_of_its_package(tmp_path):
    text = "from project.data import loaders\nmodel = Net()\noptimizer = SGD(model.parameters())  # here\n"
    (tmp_path / "train.py").write_text(f"import torch\n{text}")
    project = Project(tmp_path)
    patches()["wrap_model"].apply(Case(finding_at(f"import torch\n{text}"), NOTHING, project))
    ((_, after),) = project.after(project.take()).items()
    assert after.decode().startswith(
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel\nfrom project.data"
    )


def test_the_gpu_of_the_local_rank_stays(tmp_path):
    text = (
        'import os\nposition = int(os.environ["LOCAL_RANK"])\ndevice = f"cuda:{position}"\n'
        "torch.cuda.set_device(device)  # here\n"
    )
    with pytest.raises(CannotPatch, match="local rank already"):
        patched("gpu_of_rank", text, tmp_path)


def test_a_timeout_that_has_a_name_keeps_it(tmp_path):
    text = """\
    import datetime
    TIMEOUT = datetime.timedelta(seconds=6)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    dist.barrier()  # here
    """
    after = changed(text, ("timedelta(seconds=6)", "timedelta(hours=2)"))
    assert patched("group_timeout", text, tmp_path) == after


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

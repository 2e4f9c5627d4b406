"""Checkpoints, other files, loggers and printed lines under the recorder."""

import pytest

from ddpdoctor.recorder.events.files import LogWriter, Printed
from tests.recorder.scripts import recorded, recordings, run
from tests.support.forked import Ran

pytestmark = pytest.mark.slow

CHECKPOINT = """
import io
model = DistributedDataParallel(nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)],
    [2],
)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
torch.save({**whole, "epoch": 3}, "whole.pt")
"""


def test_what_is_saved(tmp_path):
    script = """
    with open("open.pt", "wb") as file:
        torch.save(model.module.state_dict(), file)
    torch.save(model.module, io.BytesIO())
    try:
        torch.save(1, "absent/folder.pt")
    except RuntimeError:
        pass
    """
    ran = run(tmp_path, CHECKPOINT + untab(script))
    whole, opened, memory, failed = recordings(ran)[0].saves
    assert (whole.path, whole.prefix) == (str(ran.folder / "whole.pt"), "module.")
    assert whole.entries == ("model", "optimizer", "scheduler", "epoch")
    assert whole.begin < whole.end
    assert whole.size == (ran.folder / "whole.pt").stat().st_size
    assert (opened.path, opened.prefix) == (str(ran.folder / "open.pt"), None)
    assert (memory.path, memory.size) == ("", None)
    assert failed.end is None
    assert not files(ran)


def test_what_is_loaded_and_where_it_goes(tmp_path):
    script = """
    loaded = torch.load("whole.pt", map_location="cpu")
    model.load_state_dict(loaded["model"])
    model.module.load_state_dict({name.replace("module.", ""): one for name, one in loaded["model"].items()})
    optimizer.load_state_dict(loaded["optimizer"])
    scheduler.load_state_dict(loaded["scheduler"])
    nn.Linear(2, 2).load_state_dict(loaded["model"], strict=False)
    try:
        nn.Linear(2, 2).load_state_dict(loaded["model"])
    except RuntimeError:
        pass
    nn.Linear(2, 2).load_state_dict(nn.Linear(2, 2).state_dict())
    try:
        torch.load("absent.pt")
    except FileNotFoundError:
        pass
    """
    recording = recorded(tmp_path, CHECKPOINT + untab(script))
    load, absent = recording.loads
    assert (load.map_location, load.devices, load.numbers) == ("cpu", ("cpu",), {"epoch": 3})
    assert (load.prefix, load.entries[-1], load.error) == ("module.", "epoch", None)
    assert absent.error.startswith("FileNotFoundError: ")
    wrapper, inside, optimizer, scheduler, lenient, strict, fresh = recording.state_loads
    assert (wrapper.wrapper, wrapper.matched, wrapper.load) == (0, 2, 0)
    assert (inside.wrapper, inside.matched, inside.load) == (0, 2, 0)
    assert (optimizer.kind, optimizer.name, optimizer.load) == ("optimizer", "SGD", 0)
    assert (scheduler.kind, scheduler.name, scheduler.load) == ("scheduler", "SequentialLR", 0)
    assert (lenient.strict, lenient.matched, lenient.wrapper) == (False, 0, None)
    assert lenient.missing == strict.missing == ("weight", "bias")
    assert lenient.unexpected == strict.unexpected == ("module.weight", "module.bias")
    assert strict.error.startswith("RuntimeError: Error(s) in loading")
    assert (fresh.load, fresh.error, fresh.matched) == (None, None, 2)


def test_files_of_the_scripts_own(tmp_path):
    script = """
    import pathlib, shutil, tempfile, numpy
    os.makedirs("made/twice", exist_ok=True)
    os.mkdir("folder")
    pathlib.Path("folder/a.txt").write_text("a")
    open("folder/a.txt").read()
    open("/dev/null", "w").close()
    os.rename("folder/a.txt", "folder/b.txt")
    numpy.save("folder/c.npy", numpy.zeros(1))
    shutil.rmtree("folder")
    """
    ran = run(tmp_path, script)
    assert files(ran) == [
        ("mkdir", "folder"),
        ("write", "folder/a.txt"),
        ("rename", "folder/b.txt"),
        ("write", "folder/c.npy"),
        ("remove", "folder"),
    ]


def test_loggers_and_what_is_printed_after_an_evaluation(tmp_path):
    script = """
    import logging, sys, time
    print("before")
    for (x,) in DataLoader(TensorDataset(torch.arange(4))):
        pass
    print("accuracy", 0.5, torch.tensor(2), object)
    print("elsewhere", file=open("elsewhere.txt", "w"))
    logging.basicConfig(filename="run.log", level=logging.INFO)
    logging.info("loss %.1f", 4)
    logging.debug("not this")
    time.sleep(1.1)
    print("later")
    for (x,) in DataLoader(TensorDataset(torch.arange(4))):
        break
    print("of one batch", 0.25)
    """
    ran = run(tmp_path, script)
    (recording,) = recordings(ran)
    lines = [line.text for line in recording.events(Printed)]
    assert lines == ["accuracy 0.5 tensor(2) <type>", "loss 4.0", "of one batch 0.25"]
    accuracy = "accuracy 0.5 tensor(2) <class 'object'>"
    assert ran.outputs[0].splitlines() == ["before", accuracy, "later", "of one batch 0.25"]
    (logger,) = recording.events(LogWriter)
    assert (logger.kind, logger.target) == ("logging", str(ran.folder / "run.log"))


def files(ran: Ran) -> list[tuple[str, str]]:
    """What the script did, without what the harness writes elsewhere."""
    own = f"{ran.folder}/"
    seen = [(one.action, one.path.removeprefix(own)) for one in recordings(ran)[0].files]
    return [(action, path) for action, path in seen if not path.startswith("/")]


def untab(script: str) -> str:
    return "\n".join(line[4:] for line in script.splitlines()) + "\n"

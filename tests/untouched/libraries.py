"""Writes with libraries, each in a folder of its own: ``python libraries.py FOLDER NAME...``."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

WAYS: dict[str, tuple[str, Callable[[], object]]] = {}
"""What is written, and the module that it needs."""
NATIVE = {"h5py", "torch_storage_from_a_file"}
"""What neither an audit hook of Python nor the recorder's patches see."""


def _way(module: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def register(function: Callable[[], object]) -> Callable[[], object]:
        WAYS[function.__name__] = (module, function)
        return function

    return register


def prepare(folder: Path) -> None:
    """What an earlier run left."""
    folder.mkdir(parents=True)
    for name in ("best.pt", "model.safetensors", "a.npy", "a.h5", "last.ckpt"):
        (folder / name).write_bytes(b"earlier" * 1000)
        os.utime(folder / name, ns=(10**18, 10**18 + 12345))
    (folder / "out").mkdir()
    (folder / "out" / "config.json").write_text("{}")


@_way("torch")
def torch_save() -> None:
    torch.save({"a": torch.zeros(100)}, "best.pt")


@_way("torch")
def torch_save_in_the_old_format() -> None:
    torch.save({"a": torch.zeros(100)}, "best.pt", _use_new_zipfile_serialization=False)


@_way("torch")
def torch_save_beside_and_replace() -> None:
    torch.save({"a": torch.zeros(100)}, "best.tmp")
    os.replace("best.tmp", "best.pt")  # noqa: PTH105 - as scripts do


@_way("torch")
def torch_distributed_checkpoint() -> None:
    from torch.distributed import checkpoint

    checkpoint.save({"a": torch.zeros(100)}, checkpoint_id="out", no_dist=True)


@_way("torch")
def torch_jit_save() -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "best.pt")


@_way("torch")
def torch_storage_from_a_file() -> None:
    torch.from_file("best.pt", shared=True, size=10).fill_(1.0)


@_way("torch")
def torch_profiler() -> None:
    with torch.profiler.profile() as profiler:
        torch.ones(2) + 1
    profiler.export_chrome_trace("trace.json")


@_way("numpy")
def numpy_save() -> None:
    import numpy

    numpy.save("a.npy", numpy.zeros(10))
    numpy.savez("all.npz", a=numpy.zeros(10))
    numpy.savetxt("a.txt", numpy.zeros(10))


@_way("numpy")
def numpy_tofile() -> None:
    import numpy

    numpy.zeros(10).tofile("a.npy")


@_way("numpy")
def numpy_memmap() -> None:
    import numpy

    numpy.memmap("a.npy", dtype="uint8", mode="r+", shape=(10,))[:] = 1
    numpy.memmap("new.npy", dtype="uint8", mode="w+", shape=(10,))[:] = 1


@_way("tensorboard")
def tensorboard() -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("out/runs") as writer:
        writer.add_scalar("loss", 1.0)


@_way("safetensors")
def safetensors() -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(100)}, "model.safetensors")
    save_file({"a": torch.zeros(100)}, "new.safetensors")


@_way("h5py")
def h5py() -> None:
    import h5py

    with h5py.File("a.h5", "w") as file:
        file["a"] = [1, 2]


@_way("accelerate")
def accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, project_dir="out")
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state("out/state")
    accelerator.save_model(model, "out")


@_way("transformers")
def transformers() -> None:
    from transformers import BertConfig, BertModel

    size = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    BertModel(BertConfig(**size)).save_pretrained("out")


@_way("lightning")
def lightning() -> None:
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.demos.boring_classes import BoringModel
    from lightning.pytorch.loggers import CSVLogger

    trainer = Trainer(
        max_epochs=1,
        limit_train_batches=2,
        limit_val_batches=1,
        accelerator="cpu",
        logger=CSVLogger("out"),
        callbacks=[ModelCheckpoint(".", save_last=True)],
        enable_progress_bar=False,
    )
    trainer.fit(BoringModel())
    trainer.save_checkpoint("last.ckpt")


def main(folder: Path, names: list[str]) -> None:
    """Write in each way, in a folder of its own."""
    for name in names:
        os.chdir(folder / name)
        WAYS[name][1]()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""What can be set, what it means, and its default: the sections and keys of a YAML file in configs/.

How a file and KEY=VALUE words are read is in config_file.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal


class TrainerError(Exception):
    """Something that the user can put right; one rank prints it in one line, without a traceback."""

    def __init__(self, text: str, printed_by: int = 0) -> None:
        super().__init__(text)
        self.printed_by = printed_by
        """The rank that prints it: rank 0, unless that knows nothing of it."""


def own_rank() -> int:
    """This process's rank as its launcher says it, before there is a process group to ask; 0 without a launcher."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0


@contextmanager
def errors_printed_once() -> Iterator[None]:
    """Print a TrainerError in one line, from one rank; then leave with exit status 2."""
    try:
        yield
    except TrainerError as error:
        if own_rank() == error.printed_by:
            print(f"trainer: {error}", file=sys.stderr, flush=True)
        else:
            # torchrun ends all ranks as soon as one has left; the line comes first.
            time.sleep(0.5)
        sys.exit(2)


def at_least(minimum: float, default: Any, to: float | None = None) -> Any:
    """A field that takes no smaller value, and no larger one where that is given."""
    return field(default=default, metadata={"minimum": minimum, "maximum": to})


@dataclass
class Parallel:
    """Who takes part. A launcher such as torchrun says it by environment variables, which come first."""

    world_size: int | None = at_least(1, None)  # ranks in all
    rank: int | None = at_least(0, None)  # of this process, where it is started by hand
    master_addr: str = "127.0.0.1"  # where rank 0 runs
    master_port: int | None = at_least(0, None, to=65535)  # its port; default: 29500, or any for one rank
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: GPUs, unless there is none or gloo is asked for
    backend: Literal["auto", "gloo", "nccl"] = "auto"  # auto: nccl for GPUs, gloo for CPUs
    timeout: float = at_least(1, 600.0, to=10**8)  # seconds that a collective may wait for the other ranks


@dataclass
class Data:
    """What is learned from, and which rank gets what."""

    task: Literal["language", "classes", "digits"] = "language"
    source: str = "builtin"  # text that Python carries; or a file, a folder, hf:NAME
    strategy: Literal["sharded", "dispatched", "iterable", "sharded_iterable", "memory_mapped"] = "sharded"
    uneven: Literal["drop", "pad", "join"] = "drop"  # what becomes of the samples that do not divide evenly
    batch_size: int = at_least(1, 8)  # samples of one rank in one forward pass
    workers: int = at_least(0, 0)  # loading processes of each rank
    pin_memory: bool = False  # faster copies to a GPU
    context: int = at_least(2, 64)  # bytes, or words, of one sample
    held_out: float = at_least(0, 0.05)  # share of the data that training never sees


@dataclass
class Model:
    """How large it is, and how it runs."""

    width: int = at_least(1, 32)
    layers: int = at_least(1, 1)
    heads: int = at_least(1, 4)
    dropout: float = at_least(0, 0.0, to=1)
    norm: Literal["group", "batch"] = "group"  # of the digits' model; batch has buffers, which DDP broadcasts
    compile: bool = False  # torch.compile
    checkpoint_activations: bool = False  # computes them again in backward instead of keeping them


@dataclass
class Optimizer:
    """The optimizer and its learning rate over time."""

    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = at_least(0, 1e-2)
    weight_decay: float = at_least(0, 0.01)
    momentum: float = at_least(0, 0.9)  # of sgd
    schedule: Literal["constant", "cosine"] = "constant"
    warm_up: int = at_least(0, 0)  # steps until the learning rate is reached


@dataclass
class Train:
    """The training loop."""

    epochs: int = at_least(1, 2)
    steps: int | None = at_least(1, None)  # at most this many optimizer steps in each epoch
    accumulation: int = at_least(1, 1)  # forward passes for one optimizer step
    clip: float | None = at_least(0, None)  # largest norm of the gradient
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    seed: int = at_least(0, 0, to=2**63 - 1)


@dataclass
class Ddp:
    """What DistributedDataParallel is told."""

    bucket_cap_mb: float = at_least(0, 25.0, to=10**6)
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    sync_batch_norm: bool = False  # statistics of the whole batch instead of each rank's part; GPUs only
    communication_hook: Literal["none", "float16"] = "none"  # the form in which gradients are sent


@dataclass
class Evaluation:
    """When the held-out data is looked at, and when that ends the training."""

    every: int = at_least(1, 1)  # epochs; also after the last
    patience: int | None = at_least(1, None)  # evaluations without progress after which training stops
    progress: float = at_least(0, 0.0)  # by which the loss has to fall to count as progress
    keep_best: bool = False  # a checkpoint of the best evaluation, checkpoints/best.pt


@dataclass
class Checkpoint:
    """What is kept for going on later."""

    every: int | None = at_least(1, None)  # optimizer steps; also at the end
    keep: int = at_least(1, 2)  # the newest
    resume: bool = False  # go on from the newest complete one in run.folder, where there is one
    asynchronous: bool = False  # go on training while it is written


@dataclass
class Run:
    """Where results go."""

    name: str = "trainer"
    folder: str | None = None  # default: runs/<time>-<name>
    log_every: int = at_least(1, 10)  # optimizer steps


@dataclass
class Config:
    """All of it."""

    parallel: Parallel = field(default_factory=Parallel)
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    optimizer: Optimizer = field(default_factory=Optimizer)
    train: Train = field(default_factory=Train)
    ddp: Ddp = field(default_factory=Ddp)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    run: Run = field(default_factory=Run)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for run.json and for a person to read."""
        return dataclasses.asdict(self)


def check_together(config: Config) -> None:
    """Refuse settings of which each is right and both together are not."""
    data, model, parallel = config.data, config.model, config.parallel
    joins = data.uneven == "join"
    mapped, dispatched = (data.strategy == name for name in ("memory_mapped", "dispatched"))
    on_cpu, resume = parallel.device == "cpu", config.checkpoint.resume
    size, rank = parallel.world_size or 1, parallel.rank or 0
    refused = {
        # It would leave the loop, and its part of the window's gradients would reach nobody.
        "data.uneven=join needs train.accumulation=1: a rank that runs out in the middle of a window takes its "
        "gradients with it": joins and config.train.accumulation > 1,
        "data.uneven=join has no effect with data.strategy=dispatched: rank 0 sends equal shares; use "
        "pad": joins and dispatched,
        "data.strategy=memory_mapped maps text: it needs data.task=language": mapped
        and data.task != "language",
        "data.source is empty: it takes builtin, a file, a folder or hf:NAME": not data.source,
        "data.uneven=join excludes ddp.static_graph": joins and config.ddp.static_graph,
        f"model.width {model.width} is not a multiple of model.heads {model.heads}": model.width
        % model.heads,
        "data.held_out has to be below 1: nothing would be left for training": data.held_out >= 1,
        "parallel.backend=nccl needs parallel.device=cuda": on_cpu and parallel.backend == "nccl",
        "checkpoint.resume needs run.folder: the run to go on with": resume and not config.run.folder,
        f"parallel.rank {rank} has to be below parallel.world_size": rank >= size,
    }
    for text, applies in refused.items():
        if applies:
            raise TrainerError(text)


def show(config: Config) -> str:
    """The configuration as YAML, to read and to copy; JSON's scalars are YAML's."""
    lines = []
    for section, values in config.as_dict().items():
        lines += [f"{section}:", *(f"  {name}: {json.dumps(value)}" for name, value in values.items())]
    return "\n".join(lines)

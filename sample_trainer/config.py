"""What can be set, what it means, and its default: the sections and keys of a YAML file in configs/.

Below it, the command line is read: the defaults, changed by a YAML file, changed by KEY=VALUE words.

    read_config(Path("configs/sharded.yaml"), ["train.epochs=3", "data.batch_size=16"])

Every rank reads it for itself and comes to the same result. An unknown key or a value of a wrong type is refused
before anything else happens: a typing error that is ignored costs a night of training.
"""

import argparse
import dataclasses
import difflib
import json
import math
import os
import sys
import time
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

_ENVIRONMENT = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
)
MOST = 10**9  # of anything that is counted; torch and Python take no numbers without end


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
    """Who takes part, and how."""

    world_size: int | None = at_least(1, None)  # ranks in all; a launcher's WORLD_SIZE comes first
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: GPUs, unless there is none or gloo is asked for
    backend: Literal["auto", "gloo", "nccl"] = "auto"  # auto: nccl for GPUs, gloo for CPUs
    timeout: float = at_least(1, 600.0, to=10**8)  # seconds that a collective may wait for the other ranks


@dataclass
class Data:
    """What is learned from, and which rank gets what."""

    source: str = "builtin"  # text that Python carries; or a file, a folder
    uneven: Literal["drop", "pad"] = "drop"  # what becomes of the samples that do not divide evenly
    batch_size: int = at_least(1, 8)  # samples of one rank in one forward pass
    workers: int = at_least(0, 0)  # loading processes of each rank
    pin_memory: bool = False  # faster copies to a GPU
    context: int = at_least(2, 64)  # bytes of one sample
    held_out: float = at_least(0, 0.05)  # share of the data that training never sees


@dataclass
class Model:
    """How large it is, and how it runs."""

    width: int = at_least(1, 32)
    layers: int = at_least(1, 1)
    heads: int = at_least(1, 4)
    dropout: float = at_least(0, 0.0, to=1)
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
    on_cpu, resume = parallel.device == "cpu", config.checkpoint.resume
    refused = {
        "data.source is empty: it takes builtin, a file or a folder": not data.source,
        f"model.width {model.width} is not a multiple of model.heads {model.heads}": model.width
        % model.heads,
        "data.held_out has to be below 1: nothing would be left for training": data.held_out >= 1,
        "parallel.backend=nccl needs parallel.device=cuda": on_cpu and parallel.backend == "nccl",
        "checkpoint.resume needs run.folder: the run to go on with": resume and not config.run.folder,
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


# --- The command line -----------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Not on every rank, as argparse would."""
        raise TrainerError(message)


def read_command_line() -> Config | None:
    """The configuration that was asked for; None after a dry run, which has been shown."""
    parser = _Parser(description="Train a small model with DistributedDataParallel.")
    parser.add_argument("--config", type=Path, help="a YAML file, such as those in configs/")
    parser.add_argument("--data", metavar="SOURCE", help="the same as data.source=SOURCE")
    parser.add_argument("--dry-run", action="store_true", help="show the configuration and the environment")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="such as train.epochs=2")
    options = parser.parse_intermixed_args()
    words = [*options.overrides, *([f"data.source={options.data}"] if options.data is not None else [])]
    config = read_config(options.config, words)
    if not options.dry_run:
        return config
    if own_rank() == 0:
        print(f"{show(config)}\n{_environment()}")
    return None


def _environment() -> str:
    """What a launcher and the machine say, as comments below the YAML."""
    import torch  # here, since a configuration is read without it

    values = [f"#   {name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ]
    gpus = torch.cuda.device_count()
    return "\n".join(
        [f"# torch {torch.__version__}, {gpus} visible GPUs, environment:", *(values or ["#   none"])]
    )


def read_config(file: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The defaults, changed by a file, changed by KEY=VALUE words. Raises TrainerError where the file cannot be read, a
    key is unknown, a value is wrong, or settings exclude each other."""
    config = Config()
    if file is not None:
        config.run.name = file.stem
        for key, value in _flatten(_read_yaml(file), file):
            _set(config, key, value, f" in {file}")
    for word in overrides:
        key, equals, text = word.partition("=")
        if not equals:
            raise TrainerError(f"{word!r} is not KEY=VALUE, such as train.epochs=2")
        _set(config, key, text, "")
    check_together(config)
    return config


def _read_yaml(file: Path) -> Mapping[str, Any]:
    import yaml  # here, since a run without a file can do without it

    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise TrainerError(f"cannot read the configuration {file}: {error.strerror}") from None
    except RecursionError:
        raise TrainerError(f"{file} is not a configuration: it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TrainerError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise TrainerError(f"{file} has no sections, such as train: with epochs: 2 below it")
    return content


def _flatten(content: Mapping[str, Any], file: Path) -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; an empty section has none."""
    for section, values in content.items():
        if isinstance(values, dict):
            yield from ((f"{section}.{name}", value) for name, value in values.items())
        elif section not in _sections():
            yield str(section), values
        elif values is not None:
            raise TrainerError(f"{section} is {values!r} in {file}; it takes keys of its own, below it")


def _sections() -> list[str]:
    return [section.name for section in dataclasses.fields(Config)]


def known_keys() -> list[str]:
    """All that can be set, as dotted keys."""
    return [f"{section}.{name}" for section, values in Config().as_dict().items() for name in values]


def _set(config: Config, key: str, value: Any, place: str) -> None:
    if key not in known_keys():
        raise TrainerError(f"unknown key {key!r}{place}; {_nearest(key)}")
    section, name = key.split(".")
    part = getattr(config, section)
    kind = typing.get_type_hints(type(part))[name]
    try:
        converted = _convert(value, kind)
    except (ValueError, LookupError, OverflowError):
        raise TrainerError(f"{key} is {value!r}{place}; it takes {_in_words(kind)}") from None
    limits = next(option.metadata for option in dataclasses.fields(part) if option.name == name)
    minimum, maximum = limits.get("minimum"), limits.get("maximum")
    if type(converted) is int and maximum is None:
        maximum = MOST
    if None not in (minimum, converted) and not converted >= minimum:
        raise TrainerError(f"{key} is {converted}{place}; it has to be at least {minimum}")
    if None not in (maximum, converted) and not converted <= maximum:
        raise TrainerError(f"{key} is {converted}{place}; it has to be at most {maximum}")
    setattr(part, name, converted)


def _nearest(key: str) -> str:
    """The key that was meant, by its whole name or by the part after the dot."""
    last = {key_name.split(".")[1]: key_name for key_name in known_keys()}
    close = difflib.get_close_matches(key, known_keys(), n=1, cutoff=0.75)
    close = close or [last[name] for name in difflib.get_close_matches(key.rpartition(".")[2], last, n=1)]
    return f"did you mean {close[0]}?" if close else f"the sections are {', '.join(_sections())}"


def _convert(value: Any, kind: Any) -> Any:
    """A value as the type of a field, by its text: words of the command line are text, and YAML takes 1e-3 for one.
    Raises ValueError, LookupError or OverflowError where it is none."""
    options, text = typing.get_args(kind), value if isinstance(value, str) else json.dumps(value, default=str)
    if isinstance(kind, types.UnionType):
        return None if text.lower() in ("null", "none") else _convert(value, options[0])
    if typing.get_origin(kind) is Literal:
        return options[options.index(text)]
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind is str:
        if value is None or b"\0" in text.encode():  # what cannot name a file, or be sent or written
            raise ValueError(value)
        return text
    number = kind(text)
    if not abs(number) < math.inf:
        raise ValueError(value)
    return number


def _in_words(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        return f"{_in_words(typing.get_args(kind)[0])}, or null"
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]

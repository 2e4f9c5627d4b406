"""Reads the command line: the defaults of config.py, changed by a YAML file, changed by KEY=VALUE words.

    read_config(Path("configs/sharded.yaml"), ["train.epochs=3", "data.batch_size=16"])

Every rank reads it for itself and comes to the same result. An unknown key or a value of a wrong type is refused
before anything else happens: a typing error that is ignored costs a night of training.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import os
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from config import Config, TrainerError, check_together, own_rank, show

_ENVIRONMENT = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
)
MOST = 10**9  # of anything that is counted; torch and Python take no numbers without end


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
    """The defaults, changed by a file, changed by KEY=VALUE words.

    Raises:
        TrainerError: a file that cannot be read, an unknown key, a wrong value, settings that exclude each other.
    """
    config = Config()
    if file is not None:
        config.run.name = file.stem
        for key, value in _flatten(_read_yaml(file), file):
            _set(config, key, value, f" in {file}")
    for word in overrides:
        key, equals, text = word.partition("=")
        if not equals:
            raise TrainerError(f"{word!r} is not KEY=VALUE, such as train.epochs=2")
        _set(config, key, text, "", is_text=True)
    check_together(config)
    return config


def _read_yaml(file: Path) -> Mapping[str, Any]:
    import yaml  # here, since a run without a file can do without it

    class Loader(yaml.SafeLoader):
        """YAML takes the last of two equal keys, and forgets the first section of that name."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for name in names:
                if names.count(name) > 1 and name != "<<":
                    raise TrainerError(
                        f"{file} has {name!r} twice, line {node.start_mark.line + 1} and below"
                    )
            return super().construct_mapping(node, deep)

    try:
        content = yaml.load(file.read_text("utf-8"), Loader)  # a SafeLoader
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
        if not isinstance(values, dict):
            if values is not None and section in _sections():
                raise TrainerError(f"{section} is {values!r} in {file}; it takes keys of its own, below it")
            if section not in _sections():
                yield str(section), values
            continue
        for name, value in values.items():
            yield f"{section}.{name}", value


def _sections() -> list[str]:
    return [section.name for section in dataclasses.fields(Config)]


def known_keys() -> list[str]:
    """All that can be set, as dotted keys."""
    config = Config()
    return [
        f"{section}.{option.name}"
        for section in _sections()
        for option in dataclasses.fields(getattr(config, section))
    ]


def _set(config: Config, key: str, value: Any, place: str, *, is_text: bool = False) -> None:
    if key not in known_keys():
        raise TrainerError(f"unknown key {key!r}{place}; {_nearest(key)}")
    section, name = key.split(".")
    part = getattr(config, section)
    kind = typing.get_type_hints(type(part))[name]
    converted = _convert(value, kind, is_text)
    if converted is _WRONG:
        raise TrainerError(f"{key} is {value!r}{place}; it takes {_in_words(kind)}")
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
    close = close or [
        last[key_name] for key_name in difflib.get_close_matches(key.rpartition(".")[2], last, n=1)
    ]
    return f"did you mean {close[0]}?" if close else f"the sections are {', '.join(_sections())}"


_WRONG = object()
"""In place of a value that cannot be converted; None is a value."""


def _convert(value: Any, kind: Any, is_text: bool) -> Any:
    """A value as the type of a field, or _WRONG. Words of the command line are text, values of YAML have types."""
    options = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        if value is None or (is_text and value.lower() in ("null", "none")):
            return None
        return _convert(value, options[0], is_text)
    if typing.get_origin(kind) is Literal:
        return value if value in options else _WRONG
    if kind is bool and is_text:
        return {"true": True, "false": False}.get(value.lower(), _WRONG)
    if kind is float or (kind is int and is_text):
        return _number(value, kind)  # a float of YAML too, which takes 1e-3 for text, since it has no dot
    return value if type(value) is kind and not (kind is str and _is_odd(value)) else _WRONG


def _is_odd(text: str) -> bool:
    """Whether it cannot name a file, or be sent or written."""
    try:
        return b"\0" in text.encode()
    except UnicodeEncodeError:
        return True


def _number(value: Any, kind: type) -> Any:
    try:
        number = math.nan if isinstance(value, bool) else kind(value)
    except (ValueError, TypeError, OverflowError):
        return _WRONG
    return number if abs(number) < math.inf else _WRONG  # neither infinite nor NaN


def _in_words(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        return f"{_in_words(typing.get_args(kind)[0])}, or null"
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]

"""The command line: what was asked for, what a dry run shows, and how a user's error is printed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import torch
from config import Config, TrainerError, own_rank, show
from config_file import read_config

ENVIRONMENT = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
)


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
    values = [f"#   {name}={os.environ[name]}" for name in ENVIRONMENT if name in os.environ]
    gpus = torch.cuda.device_count()
    return "\n".join(
        [f"# torch {torch.__version__}, {gpus} visible GPUs, environment:", *(values or ["#   none"])]
    )


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

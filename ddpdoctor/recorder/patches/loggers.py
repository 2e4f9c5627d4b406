"""Experiment loggers and log files that the script opens."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..guard import guarded

if TYPE_CHECKING:
    from ..session import Session

Target = Callable[[Any, tuple[Any, ...], dict[str, Any]], str]


def install(session: Session) -> None:
    """Watch SummaryWriter, wandb.init, mlflow.start_run and logging's FileHandler."""
    watch = functools.partial(_watch, session)
    session.patch(logging.FileHandler, "__init__", functools.partial(watch, "logging", _log_file))
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        session.when_imported(module, functools.partial(_watch_summary, session, module))
    for module, name, target in (("wandb", "init", _project), ("mlflow", "start_run", _run)):
        session.when_imported(module, functools.partial(_watch_init, session, module, name, target))


def _watch_summary(session: Session, module: str) -> None:
    writer = sys.modules[module].SummaryWriter
    make = functools.partial(_watch, session, "tensorboard", _summary_folder)
    session.patch(writer, "__init__", make)


def _watch_init(session: Session, module: str, name: str, target: Target) -> None:
    make = functools.partial(_watch, session, module, target)
    session.patch_function((module,), name, make)


def _watch(session: Session, kind: str, target: Target, original: Callable[..., Any]) -> Callable[..., Any]:
    @guarded
    def tell(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session.event("logger", at=session.here(), what=kind, target=target(result, args, kwargs))

    @functools.wraps(original)
    def opened(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        tell(result, args, kwargs)
        return result

    return opened


def _log_file(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return os.path.realpath(str(args[0].baseFilename))


def _summary_folder(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    folder = getattr(args[0], "log_dir", None) or getattr(args[0], "logdir", None) or ""
    return os.path.realpath(str(folder)) if folder else ""


def _project(run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if kwargs.get("mode") == "disabled" or getattr(run, "disabled", False):
        return "disabled"
    return str(kwargs.get("project") or getattr(run, "project", "") or "")


def _run(run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return str(kwargs.get("run_name") or getattr(getattr(run, "info", None), "experiment_id", "") or "")

"""Experiment loggers and log files that the script opens."""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..events.files import LogWriter
from ..patch import Args, Kwargs, Make, after_call
from ..session import Session
from ..where import Where

_WARNINGS = 3
"""Lines; a logger that nobody gave a level shows nothing below, so some write all they have to say as warnings."""
Target = Callable[[Any, Args, Kwargs], str]


def install(session: Session) -> None:
    """Watch SummaryWriter, wandb.init, mlflow.start_run and what goes through logging's FileHandler."""
    files = _LogFiles(session)
    session.patch(logging.FileHandler, "__init__", after_call(files.note))
    session.patch(logging.FileHandler, "emit", after_call(files.look))
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        session.when_imported(module, functools.partial(_watch_summary, session, module))
    for module, name, target in (("wandb", "init", _project), ("mlflow", "start_run", _run)):
        session.when_imported(module, functools.partial(_watch_init, session, module, name, target))


class _LogFiles:
    """Files of logging; one is told of with its first line below WARNING, or its third above.

    Ranks may keep a file open for a warning of their own, and a framework for nothing at all.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.opened: weakref.WeakKeyDictionary[Any, Where | None] = weakref.WeakKeyDictionary()
        self.warned: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        """A handler was made."""
        self.opened[args[0]] = self.session.here()

    def look(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        """A handler wrote a line."""
        handler, record = args
        if handler not in self.opened:
            return
        self.warned[handler] = self.warned.get(handler, 0) + 1
        if record.levelno >= logging.WARNING and self.warned[handler] < _WARNINGS:
            return
        at, path = self.opened.pop(handler), os.path.realpath(str(handler.baseFilename))
        self.session.event(LogWriter("logging", path, at, time.monotonic()))


def _watch_summary(session: Session, module: str) -> None:
    writer = sys.modules[module].SummaryWriter
    session.patch(writer, "__init__", _watch(session, "tensorboard", _summary_folder))


def _watch_init(session: Session, module: str, name: str, target: Target) -> None:
    session.patch_function((module,), name, _watch(session, module, target))


def _watch(session: Session, kind: str, target: Target) -> Make:
    def look(result: Any, args: Args, kwargs: Kwargs) -> None:
        session.event(LogWriter(kind, target(result, args, kwargs), session.here(), time.monotonic()))

    return after_call(look)


def _summary_folder(_: Any, args: Args, kwargs: Kwargs) -> str:
    folder = getattr(args[0], "log_dir", None) or getattr(args[0], "logdir", None) or ""
    return os.path.realpath(str(folder)) if folder else ""


def _project(run: Any, args: Args, kwargs: Kwargs) -> str:
    if kwargs.get("mode") == "disabled" or getattr(run, "disabled", False):
        return "disabled"
    return str(kwargs.get("project") or getattr(run, "project", "") or "")


def _run(run: Any, args: Args, kwargs: Kwargs) -> str:
    return str(kwargs.get("run_name") or getattr(getattr(run, "info", None), "experiment_id", "") or "")

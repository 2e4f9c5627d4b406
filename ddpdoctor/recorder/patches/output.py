"""What the script logs: experiment loggers and log files that it opens, and lines that it prints or logs right after an
evaluation, the metrics that it announces.

What is printed goes its way unchanged; the line is noted afterwards, and only for a second after a pass that trained
nothing, or after a forward in eval mode.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..events.files import LogWriter, Printed
from ..passes import ENDED_WITHOUT_TRAINING
from ..patch import Args, Kwargs, after_call, guarded
from ..session import Part, Session
from ..where import Where
from .forward import EVALUATED

_WARNINGS = 3
"""Lines; a logger that nobody gave a level shows nothing below, so some write all they have to say as warnings."""
_SECONDS = 1.0
_MOST = 100
_LONGEST = 200
_MOST_ENTRIES = 20
"""Of a dict of metrics."""
Target = Callable[[Any, Args, Kwargs], str]


def install(session: Session) -> None:
    """Watch print and logging, and loggers of experiments once they are imported."""
    files, lines = _LogFiles(session), _Lines(session)
    session.patch(builtins, "print", after_call(lines.look_at_print))
    session.patch(logging.Logger, "handle", after_call(lines.look_at_record))
    session.patch(logging.FileHandler, "__init__", after_call(files.note))
    session.patch(logging.FileHandler, "emit", after_call(files.look))
    for module, name, kind, target in (
        ("torch.utils.tensorboard.writer", "SummaryWriter.__init__", "tensorboard", _summary_folder),
        ("tensorboardX.writer", "SummaryWriter.__init__", "tensorboard", _summary_folder),
        ("wandb", "init", "wandb", _project),
        ("mlflow", "start_run", "mlflow", _run),
    ):

        def tell(result: Any, args: Args, kwargs: Kwargs, kind: str = kind, target: Target = target) -> None:
            session.event(LogWriter(kind, target(result, args, kwargs), session.here(), time.monotonic()))

        session.patch_later(module, name, after_call(tell))


def _summary_folder(_: Any, args: Args, kwargs: Kwargs) -> str:
    folder = getattr(args[0], "log_dir", None) or getattr(args[0], "logdir", None) or ""
    return os.path.realpath(str(folder)) if folder else ""


def _project(run: Any, args: Args, kwargs: Kwargs) -> str:
    if kwargs.get("mode") == "disabled" or getattr(run, "disabled", False):
        return "disabled"
    return str(kwargs.get("project") or getattr(run, "project", "") or "")


def _run(run: Any, args: Args, kwargs: Kwargs) -> str:
    return str(kwargs.get("run_name") or getattr(getattr(run, "info", None), "experiment_id", "") or "")


class _LogFiles(Part):
    """Files of logging; one is told of with its first line below WARNING, or its third above: ranks may keep a file
    open for a warning of their own, and a framework for nothing at all."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.opened: weakref.WeakKeyDictionary[Any, Where | None] = weakref.WeakKeyDictionary()
        self.warned: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        self.opened[args[0]] = self.session.here()

    def look(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        handler, record = args
        if handler not in self.opened:
            return
        self.warned[handler] = self.warned.get(handler, 0) + 1
        if record.levelno >= logging.WARNING and self.warned[handler] < _WARNINGS:
            return
        at, path = self.opened.pop(handler), os.path.realpath(str(handler.baseFilename))
        self.session.event(LogWriter("logging", path, at, time.monotonic()))


class _Lines(Part):
    left = _MOST

    def look_at_print(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        if self.listens() and kwargs.get("file") in (None, sys.stdout, sys.stderr):
            self.tell(lambda: " ".join(self.show(arg) for arg in args), args)

    def look_at_record(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        if self.listens():
            record = args[1]
            self.tell(record.getMessage, (record.msg, *(record.args if type(record.args) is tuple else ())))

    def listens(self) -> bool:
        """Whether a pass, or a forward in eval mode, ended a moment ago, and nothing was trained since."""
        never, shared = (0.0, -1), self.session.shared
        ended, steps = max(shared.get(ENDED_WITHOUT_TRAINING, never), shared.get(EVALUATED, never))
        return steps == self.session.steps and self.left > 0 and time.monotonic() - ended < _SECONDS

    @guarded
    def tell(self, text: Callable[[], str], parts: Sequence[object]) -> None:
        """Write a line down, with the place that put it together."""
        self.left -= 1
        self.session.event(Printed(time.monotonic(), self.session.here(parts), text()[:_LONGEST]))

    def show(self, value: Any) -> str:
        """A value as print shows it, where asking for its text can do nothing else."""
        if type(value) is dict and len(value) <= _MOST_ENTRIES:
            return ", ".join(f"{self.show(key)}: {self.show(entry)}" for key, entry in value.items())
        plain = isinstance(value, str | int | float | bool | None)
        small = isinstance(value, self.torch.Tensor) and value.device.type == "cpu" and value.numel() < 9
        return str(value) if plain or small else f"<{type(value).__name__}>"

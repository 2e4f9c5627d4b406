"""One process being recorded: where patches leave what they saw."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from .after_import import when_imported
from .events.process import Device, Note, Start
from .events.schema import SCHEMA, Event, encode
from .launchers import LAUNCHER_VARIABLES
from .options import RecorderOptions
from .patch import (
    IN_FULL,
    Args,
    Kwargs,
    Make,
    Replaced,
    guarded,
    hide_from_compiler,
    hide_package,
    nothing,
    on_fault,
    unwarned,
)
from .sites import Sites
from .where import Site
from .writer import Writer

_Part = TypeVar("_Part", bound="Part")

MARK = "__ddpdoctor__"


def _main_script() -> str:
    script = sys.argv[0] if sys.argv else ""
    return os.path.abspath(script) if os.path.isfile(script) else script


class Session:
    """What the patches share. All of it may run in any thread of the user's."""

    def __init__(self, options: RecorderOptions, torch: Any) -> None:
        self.options, self.folder = options, options.record
        self.torch = torch
        self.writer = Writer(self.folder)
        self.sites = Sites(os.path.dirname(os.path.abspath(torch.__file__)))
        self.rank: int | None = None
        """In the default process group, once there is one."""
        self.detailed = True
        """Whether the current training step is written down in full."""
        self.steps = 0
        """Training steps so far."""
        self.backwards = 0
        """Backwards so far, of all training steps."""
        self.waited = 0.0
        """Seconds spent waiting for batches so far."""
        self.thread: int | None = None
        """The thread that trains, by its identifier; None where none has been seen to. Ray has one beside the main."""
        self.forks = 0
        """Processes that were forked so far."""
        self.in_worker = False
        """Whether this process is a forked child, as DataLoader workers are, and has not joined a group itself."""
        self.shared: dict[str, Any] = {}
        """What several patches of one area know together, by the area's name."""
        self.when_opened: list[Callable[[], object]] = []
        """Called where a training step begins that is not the first; in a run that may be cut also at the update
        before one that is counted only."""
        self.before_destroy: list[Callable[[], object]] = []
        """Called, guarded, before the default process group is destroyed."""
        self.before_end: list[Callable[[str], object]] = []
        """Called, guarded, with how the script ends, just before that is written down."""
        self.ended = False
        """Whether that was written down."""
        self._installed: set[str] = set()
        self._replaced = Replaced()
        self.undo = self._replaced.close
        """Takes every patch back, the last first."""
        self.on_undo = self._replaced.callback
        """Has ``undo`` do something else, too."""

    def begin(self, environ: Mapping[str, str]) -> None:
        """Put every patch in place; one that fails leaves a note, the others stand. ``environ`` is the launcher's."""
        on_fault(self.note)
        hide_from_compiler(self.torch, nothing, everything=True)
        self._begin_record(environ)
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)
        if self.options.rehearse:
            self._rehearse()  # first, so that what is watched is what the script calls
        from . import patches

        for name in patches.names():
            self.install(name)
        hide_package(self.torch, str(__package__))

    def _begin_record(self, environ: Mapping[str, str]) -> None:
        """The record of this process begins with what it is."""
        start = Start(
            SCHEMA,
            time=time.monotonic(),
            began=time.time_ns(),
            pid=os.getpid(),
            parent=os.getppid(),
            host=os.uname().nodename,  # the real one: its ranks share a clock and a file system
            torch=str(self.torch.__version__),
            script=_main_script(),
            environ={name: environ[name] for name in LAUNCHER_VARIABLES if name in environ},
        )
        self.writer.began, self.writer.header = start.began, encode(start, start.time)

    @guarded
    def install(self, name: str) -> None:
        """Put the patch of this name in place, once."""
        if name not in self._installed:
            self._installed.add(name)
            importlib.import_module(f".patches.{name}", __package__).install(self)

    @guarded
    def _rehearse(self) -> None:
        from .rehearse import install

        self.on_undo(install(self._tell_of_device))

    def _tell_of_device(self, event: Device | Note) -> None:
        if isinstance(event, Device):
            event.at = self.here()
        self.event(event)

    def _before_fork(self) -> None:
        self.forks += 1

    def _in_child(self) -> None:
        self.writer.after_fork()
        self.sites.tell_again()
        self.in_worker, self.ended = True, False
        self._begin_record(os.environ)

    def event(self, event: Event, *, now: bool = False) -> None:
        """Write an event down; ``now`` brings it to the file before this returns: it may be the process's last word."""
        written = round(time.monotonic(), 6)
        if self.sites.fresh:
            fresh, self.sites.fresh = self.sites.fresh, []
            for site in fresh:
                self.writer.write(encode(site, written), now=True)  # last words name some, too
        self.writer.write(encode(event, written), now=now)

    def here(self, handed_on: Sequence[object] = ()) -> Site | None:
        """The user's line that led to the caller, past functions that only hand on these values."""
        return self.sites.here(handed_on)

    def unless_detailed(self, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """The brief way of a patch that looks only in steps that are told in full."""
        return IN_FULL if self.detailed else original(*args, **kwargs)

    def note(self, topic: str, text: str) -> None:
        """Tell the report of something that the recorder could not do."""
        self.event(Note(topic, text[:2000]))

    def when_imported(self, name: str, callback: Callable[[], object]) -> None:
        """Call back once a module was imported, by the user's script or now; never import it for that."""
        when_imported(name, guarded(callback))

    def patch(self, owner: Any, name: str, make: Make) -> None:
        """Replace ``owner.name`` by ``make`` of it, once, until :meth:`undo`."""
        if (original := getattr(owner, name, None)) is None or hasattr(original, MARK):
            return
        replacement = make(original)
        hide_from_compiler(self.torch, unwarned(replacement))
        setattr(replacement, MARK, True)
        self._replaced.set(owner, name, replacement)

    def patch_function(self, modules: Iterable[str | ModuleType], name: str, make: Make) -> None:
        """Replace a function in every module that holds it under its name, by one replacement."""
        loaded = [sys.modules.get(module) if isinstance(module, str) else module for module in modules]
        holders = [module for module in loaded if module is not None and hasattr(module, name)]
        if not holders:
            return
        original = getattr(holders[0], name)
        replacement = make(original)
        for module in holders:
            if getattr(module, name) is original:
                self.patch(module, name, lambda _: replacement)

    def patch_later(self, module: str, name: str, make: Make) -> None:
        """Replace a function of a module, or as ``Class.name`` a method, once the script has imported it."""

        def patch() -> None:
            *path, last = name.split(".")
            self.patch(functools.reduce(getattr, path, sys.modules[module]), last, make)

        self.when_imported(module, patch)


class Part:
    """What patches of one area know, together where they ask for the one that each session has."""

    def __init__(self, session: Session) -> None:
        self.session, self.torch = session, session.torch

    @classmethod
    def of(cls: type[_Part], session: Session) -> _Part:
        """The session's own, made for the first that asks."""
        known: _Part | None = session.shared.get(cls.__name__)
        if known is None:
            known = session.shared[cls.__name__] = cls(session)
        return known

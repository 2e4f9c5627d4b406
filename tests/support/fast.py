"""A plugin of pytest: what ``pytest -m "not slow"`` runs, and that it stays fast.

A fast test takes about a second at most, and starts neither torchrun nor any process that imports torch. One that
does fails and says what it started: mark the test, or its file by ``pytestmark``, with ``pytest.mark.slow``.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest

from tests.support.watcher import sitecustomize as watcher

SLOW = ("healthy", "packaging", "sick")
"""Folders of tests all of which are slow."""
ALONE = ("tests/healthy/", "tests/sick/")
"""Where each test runs a script of its own."""
LONG = (
    *(
        "tests/cli/test_check_script.py",
        "tests/packaging/test_documents.py",
        "tests/untouched/test_commands.py",
    ),
    *("tests/cli/test_bare_machines.py", "tests/cli/test_train.py", "tests/live/test_real_drifts.py"),
)
"""Files that take minutes, which begin first."""
_TESTS = Path(__file__).parents[1]
_WATCHER = Path(watcher.__file__).parent


def pytest_configure() -> None:
    sys.addaudithook(watcher.watch)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what lies in a folder of slow tests. Workers run slow tests first: fast ones fill all workers to the end.

    Slow files and scripts come in any order, which is the same on all workers: commands, which compute, run beside
    scripts, which mostly wait. The last quarter is scripts alone, so no file is begun near the end.
    """
    for item in items:
        if item.path.is_relative_to(_TESTS) and item.path.relative_to(_TESTS).parts[0] in SLOW:
            item.add_marker("slow")
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what stays to the end: it would look through all modules and tests each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Whole files to each worker, since their tests share launches; of scripts one after the other."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    config.option.loadscopereorder = False
    return Files(config, log)


def _turn(item: pytest.Item) -> tuple[bool, float]:
    """What decides when a test runs; equal for the tests of a file, which stay in their order."""
    scope = _scope(item.nodeid)
    if not _is_slow(item):
        return True, 0.0
    if scope in LONG:
        return False, -1.0 / (1 + LONG.index(scope))
    return False, crc32(scope.encode()) / 2**32 * (1.0 if _is_alone(scope) else 0.75)


def _scope(nodeid: str) -> str:
    """What one worker runs: a file; or a test that shares nothing with others of its file."""
    return nodeid if _is_alone(nodeid) else nodeid.partition("::")[0]


def _is_alone(nodeid: str) -> bool:
    return nodeid.startswith(ALONE)


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch what a fast test starts, fixtures of its module included."""
    if _is_slow(item):
        return (yield)
    with TemporaryDirectory() as folder, _environment(Path(folder, "starts")):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a fast test that started what a slow one starts."""
    done = yield
    starts = Path(os.environ.get(watcher.LOG, os.devnull))
    if starts.is_file():
        pytest.fail(f"not marked slow, and it {starts.read_text()}", pytrace=False)
    return done


@contextmanager
def _environment(starts: Path) -> Iterator[None]:
    """The watcher in this process and in the Python processes that it starts."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_WATCHER), before]))
    os.environ[watcher.LOG] = str(starts)
    try:
        yield
    finally:
        del os.environ[watcher.LOG]
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before

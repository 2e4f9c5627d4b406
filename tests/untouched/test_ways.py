"""Scripts without torch that write in every way, all in one job of each mode."""

import sys
from pathlib import Path

import pytest

from ddpdoctor.trace import Trace
from tests.untouched import ways
from tests.untouched.support import MODES, State, run, state, why_not

SCRIPT = Path(ways.__file__)
NOT_BY_USERS = {"by_folder_descriptors", "write_to_one_of_two_names"}
"""Overlayfs in a user namespace cannot rename a folder that was there before, and parts hard links."""

pytestmark = pytest.mark.slow


class Ran:
    """One job that wrote in every way."""

    def __init__(self, mode: str, place: Path) -> None:
        self.names = [name for name in ways.WAYS if mode != "user namespace" or name not in NOT_BY_USERS]
        self.working = place / "project"
        for name in self.names:
            (self.working / name).mkdir(parents=True)
            ways.prepare(self.working / name)
        self.before = {name: state(self.working / name) for name in self.names}
        words = (sys.executable, str(SCRIPT), str(self.working), *self.names)
        self.trace: Trace = run(mode, self.working, place / "run", *words)
        self.after: dict[str, State] = {name: state(self.working / name) for name in self.names}


_ran: dict[str, Ran] = {}


@pytest.fixture
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The job of a mode, run once."""
    mode = request.param
    if reason := why_not(mode):
        pytest.skip(reason)
    if mode not in _ran:
        _ran[mode] = Ran(mode, tmp_path_factory.mktemp("untouched"))
    return _ran[mode]


def _cases() -> list[object]:
    return [
        pytest.param(mode, name, id=f"{mode}-{name}")
        for mode in MODES
        for name in ways.WAYS
        if not (mode == "user namespace" and name in NOT_BY_USERS)
        and not (mode == "journal" and name in ways.NATIVE)
    ]


@pytest.mark.parametrize(("ran", "name"), _cases(), indirect=["ran"])
def test_all_is_as_it_was(ran: Ran, name: str) -> None:
    assert ran.trace.status == 0, ran.trace.log
    assert ran.after[name] == ran.before[name]


@pytest.mark.parametrize("ran", MODES, indirect=True)
def test_nothing_else_is_left(ran: Ran) -> None:
    assert {path.name for path in ran.working.iterdir()} == set(ran.names)
    assert not (ran.working.parent / "run" / "layers").exists()


@pytest.mark.parametrize("ran", MODES, indirect=True)
def test_what_would_have_been_written_is_told(ran: Ran) -> None:
    assert ran.trace.written is not None
    files = {str(Path(file.path).relative_to(ran.working)): file for file in ran.trace.written.files}
    assert (files["open_w/best.pt"].existed, files["open_w/best.pt"].size) == (True, 3)
    assert not files["open_w_of_a_new_file/new.pt"].existed
    assert files["os_remove/best.pt"].removed
    assert files["makedirs/runs/a/b/c/log.txt"].size == 3
    assert "open_x_where_it_is/best.pt" not in files


@pytest.mark.parametrize("ran", MODES, indirect=True)
def test_it_is_told_where_there_was_no_view(ran: Ran, request: pytest.FixtureRequest) -> None:
    assert ran.trace.written is not None
    journal = "journal" in request.node.callspec.id
    assert ran.trace.written.why_not == ("DDPDOCTOR_NO_VIEW is set" if journal else None)

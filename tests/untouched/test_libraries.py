"""Scripts that write with libraries; those that are not installed are skipped: ``python -m tests.frameworks``."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.untouched import libraries
from tests.untouched.support import run, state, why_not

pytestmark = pytest.mark.slow
SCRIPT = Path(libraries.__file__)


@pytest.mark.parametrize("mode", ["view", "journal"])
def test_all_is_as_it_was(mode: str, tmp_path: Path) -> None:
    if reason := why_not(mode):
        pytest.skip(reason)
    left_out = libraries.NATIVE if mode == "journal" else ()
    names = [
        name for name, (module, _) in libraries.WAYS.items() if find_spec(module) and name not in left_out
    ]
    working = tmp_path / "project"
    for name in names:
        libraries.prepare(working / name)
    before = {name: state(working / name) for name in names}
    trace = run(mode, working, tmp_path / "run", sys.executable, str(SCRIPT), str(working), *names)
    assert trace.status == 0, trace.log
    changed = {
        name: {path for path in {**was, **now} if was.get(path) != now.get(path)}
        for name, was in before.items()
        if (now := state(working / name)) != was
    }
    assert changed == {}
    assert {path.name for path in working.iterdir()} == set(names)

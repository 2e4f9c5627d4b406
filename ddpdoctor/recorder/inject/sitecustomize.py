"""Brings the recorder into every Python process below a command whose PYTHONPATH begins with this folder.

Python imports a module of this name at start. It arms the recorder, leaves sys.path as the user has it, and hands
over to the user's own sitecustomize, where there is one.
"""

import importlib
import importlib.util
import io
import os
import stat
import sys
from types import ModuleType


def _load_recorder(folder: str) -> ModuleType:
    """The recorder by its path, under a name that cannot meet anything of the user's environment."""
    name = "_ddpdoctor_recorder"
    place = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _hand_over(ours: ModuleType) -> None:
    """Import the sitecustomize that would have been found without us; an exception in it is the user's own."""
    sys.modules.pop(__name__, None)
    try:
        importlib.import_module(__name__)
    except ModuleNotFoundError as missing:
        if missing.name != __name__:
            raise
        sys.modules[__name__] = ours


def _write_lines() -> None:
    """Have a file on stdout written line by line, as a terminal is: it is passed on live, ranks that share it do not
    mix within a line, and what one said stays said where it is killed. No byte is another one."""
    if isinstance(sys.stdout, io.TextIOWrapper) and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
        sys.stdout.reconfigure(line_buffering=True)


_own = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _own]
if os.environ.get("DDPDOCTOR_RECORD"):
    try:
        _load_recorder(os.path.dirname(_own)).arm()
        _write_lines()
    except Exception:  # noqa: BLE001 - the user's process must start whatever is wrong with ours; the missing record tells
        sys.modules.pop("_ddpdoctor_recorder", None)
_hand_over(sys.modules[__name__])

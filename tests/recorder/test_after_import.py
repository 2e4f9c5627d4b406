"""What is called around the import of a module, and that the import is as it would be without."""

import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpdoctor.recorder import after_import


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Modules of a folder, and what is called around their import."""
    finder, told = after_import._Finder(), list[tuple[str, str]]()
    monkeypatch.setattr(after_import, "_finder", finder)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "outer_of_two.py").write_text("import inner_of_two\nname = __spec__.name\n")
    (tmp_path / "inner_of_two.py").write_text("")
    (tmp_path / "broken_one.py").write_text("value = 1\nvalue.absent\n")

    def around(file: str) -> after_import.Callback:
        told.append(("before", Path(file).name))
        return lambda: told.append(("after", Path(file).name))

    after_import.around_imports(lambda: True, around)
    yield told
    for name in ("outer_of_two", "inner_of_two", "broken_one"):
        sys.modules.pop(name, None)


def test_it_is_called_around_each_module(calls: list[tuple[str, str]]) -> None:
    module = importlib.import_module("outer_of_two")
    assert module.name == "outer_of_two"
    assert "exec_module" not in vars(module.__spec__.loader)
    assert calls == [
        ("before", "outer_of_two.py"),
        ("before", "inner_of_two.py"),
        ("after", "inner_of_two.py"),
        ("after", "outer_of_two.py"),
    ]


def test_an_error_goes_on_with_the_frames_that_it_would_have(calls: list[tuple[str, str]]) -> None:
    with pytest.raises(AttributeError) as caught:
        importlib.import_module("broken_one")
    files = [Path(frame.filename).name for frame in traceback.extract_tb(caught.tb)]
    assert "after_import.py" not in files
    assert files[-1] == "broken_one.py"
    assert calls == [("before", "broken_one.py"), ("after", "broken_one.py")]


def test_nothing_is_called_where_it_is_not_wanted(calls: list[tuple[str, str]]) -> None:
    after_import.around_imports(lambda: False, lambda _: pytest.fail("called"))
    assert importlib.import_module("outer_of_two").name == "outer_of_two"
    assert calls == []

"""Places in the user's code."""

import sys
import weakref
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from ddpdoctor.recorder.sites import Sites


@pytest.fixture
def sites() -> Sites:
    return Sites("/nowhere/torch")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows no columns before 3.11")
def test_calls_on_one_line_are_places_with_columns_of_their_own_and_equal_lines(sites):
    first, second = sites.here(), sites.here()
    assert (first.file, first.line) == (second.file, second.line) == (__file__, first.line)
    line = Path(__file__).read_text(encoding="utf-8").split("\n")[first.line - 1]
    assert [line[slice(*site.columns)] for site in (first, second)] == ["sites.here()"] * 2
    assert first.columns < second.columns


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows no columns before 3.11")
def test_a_call_over_several_lines_has_no_columns(sites):
    library_call = eval("lambda sites, *_: sites.here()")
    assert library_call(sites).columns is not None
    spread = library_call(
        sites,
        1,
    )
    assert spread.columns is None


def test_the_place_is_the_same_each_time(sites):
    assert len({id(sites.here()) for _ in range(3)}) == 1


def test_a_function_that_hands_on_what_it_was_given_is_passed_over(sites):
    def show(*values, end=""):
        return sites.here((*values, end)), sites.here((*values, "made here"))

    def say(text):
        return show(text, "made by say")

    handed_on, made_here = say(f"{sites}")
    assert [handed_on.function.split(".")[-1], made_here.function.split(".")[-1]] == ["say", "show"]
    assert (
        sites.here(("of the module",)).function
        == test_a_function_that_hands_on_what_it_was_given_is_passed_over.__name__
    )


class Batch:
    """Something that a script lets go of."""


def test_a_function_whose_arguments_were_looked_at_lets_go_of_what_it_held(sites):
    def steps(number):
        batch = Batch()
        let_go = weakref.ref(batch)
        sites.here(("something else",))
        del batch
        return let_go() is None

    assert steps(3)


def test_what_a_function_made_of_its_arguments_is_left_as_it_is(sites):
    def log(*parts):
        parts = iter(parts)
        sites.here((next(parts),))
        return list(parts)

    assert log(1, 2, 3) == [2, 3]


def test_a_function_may_look_at_its_own_variables_meanwhile(sites):
    def show(number):
        for name in locals():
            sites.here((name,))
        return sorted(locals())

    assert show(3) == ["name", "number", "sites"]


COMMAND = """#!/usr/bin/python3
import re
import sys
from acme.cli import app
if __name__ == '__main__':
    sys.exit(app())
"""


def started(monkeypatch, file: str | None, spec: ModuleSpec | None = None) -> None:
    """Let this be what the process runs."""
    main = ModuleType("__main__")
    main.__spec__ = spec
    if file is not None:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [file or "-m"])


def test_a_package_that_dash_m_starts_is_the_users_and_others_are_not(sites, monkeypatch):
    packages = "/usr/lib/python3/site-packages"
    started(monkeypatch, None)
    assert sites.is_foreign(f"{packages}/acme/engine.py")  # nobody knows it yet: -m imports parents first
    started(monkeypatch, f"{packages}/acme/train/__main__.py", ModuleSpec("acme.train.__main__", None))
    assert not sites.is_foreign(f"{packages}/acme/engine.py")
    assert sites.is_foreign(f"{packages}/acme_tools/engine.py")
    assert sites.is_foreign("/nowhere/torch/nn/functional.py")
    assert not sites.is_foreign("/home/me/plugin.py")


def test_a_script_among_packages_that_was_started_by_its_path_is_the_users_alone(sites, monkeypatch):
    packages = "/opt/lib/python3.11/dist-packages"
    started(monkeypatch, f"{packages}/ray/worker.py")
    assert not sites.is_foreign(f"{packages}/ray/worker.py")
    assert sites.is_foreign(f"{packages}/ray/train.py")


def test_a_command_that_pip_made_belongs_to_its_package(sites, monkeypatch, tmp_path):
    packages = tmp_path / "site-packages"
    (tmp_path / "acme-train").write_text(COMMAND)
    started(monkeypatch, str(tmp_path / "acme-train"))
    assert sites.is_foreign(f"{packages}/acme/engine.py")  # it has not imported its package yet
    acme = ModuleType("acme")
    acme.__file__ = f"{packages}/acme/__init__.py"
    monkeypatch.setitem(sys.modules, "acme", acme)
    assert not sites.is_foreign(f"{packages}/acme/engine.py")
    assert sites.is_foreign(f"{packages}/lightning/engine.py")


def test_a_file_is_looked_at_once_where_the_script_is_known(sites, monkeypatch):
    torch, library = "/nowhere/torch/nn/functional.py", "/opt/lib/python3.11/site-packages/acme/engine.py"
    looked_at = []
    look = Sites._look
    monkeypatch.setattr(Sites, "_look", lambda self, file: looked_at.append(file) or look(self, file))
    started(monkeypatch, None)
    assert all(sites.is_foreign(file) for file in (torch, library) * 3)
    assert looked_at == [torch, library, library, library]
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert all(sites.is_foreign(file) for file in (torch, library) * 3)
    assert looked_at == [torch, *[library] * 4]


def test_a_script_of_the_users_own_leaves_packages_foreign(sites, monkeypatch, tmp_path):
    (tmp_path / "train.py").write_text("from acme.cli import app\n")
    started(monkeypatch, str(tmp_path / "train.py"))
    assert sites.is_foreign(f"{tmp_path}/site-packages/acme/engine.py")


def test_text_without_a_file_keeps_its_name(sites):
    assert eval(compile("sites.site((lambda: 0).__code__, 1, 0)", "<string>", "eval")).file == "<string>"


def test_what_a_package_in_another_folder_lists_as_its_own_is_foreign(sites, monkeypatch, tmp_path):
    (tmp_path / "bar-1.0.dist-info").mkdir()
    (tmp_path / "bar-1.0.dist-info" / "RECORD").write_text(
        "bar/show.py,sha256=x,10\nbar-1.0.dist-info/RECORD,,\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert sites.is_foreign(str(tmp_path / "bar" / "show.py"))
    assert not sites.is_foreign(str(tmp_path / "bar" / "mine.py"))
    assert not sites.is_foreign(str(tmp_path / "show.py"))


def test_a_script_in_such_a_package_is_the_users(sites, monkeypatch, tmp_path):
    (tmp_path / "bar-1.0.dist-info").mkdir()
    (tmp_path / "bar-1.0.dist-info" / "RECORD").write_text("bar/train.py,,\nbar/data.py,,\nbaz.py,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    sys.modules["__main__"].__file__ = str(tmp_path / "bar" / "train.py")
    assert not sites.is_foreign(str(tmp_path / "bar" / "data.py"))
    assert sites.is_foreign(str(tmp_path / "baz.py"))

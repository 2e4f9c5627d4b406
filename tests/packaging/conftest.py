import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_SOURCE = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "build", "dist", "*.egg-info")


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Run a command without our own variables, and return its stdout.

    Raises:
        AssertionError: it did not end with 0.
    """
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **environ}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as a clean clone has them."""
    folder = tmp_path_factory.mktemp("checkout") / "ddpdoctor"
    shutil.copytree(ROOT, folder, ignore=NOT_SOURCE)
    return folder


def build(kind: str, source: Path, into: Path) -> Path:
    """Build a wheel or an sdist with the setuptools of this environment, so that no network is needed."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    run(sys.executable, "-c", code, into, cwd=source)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="session")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", checkout, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a virtual environment that sees our dependencies, and installs into it; returns its python."""

    def make(*install: str | Path) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, symlinks=True, with_pip=False)
        python = folder / "bin" / "python"
        # A path in a .pth file lends the dependencies; the .pth of an editable install in there stays unread.
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        for one in install:
            pip_install(python, one)
        return python

    return make


@pytest.fixture(scope="session")
def installed(environment: Callable[..., Path], wheel: Path) -> Path:
    """The python of an environment that has the wheel."""
    return environment(wheel)


def pip_install(python: Path, what: str | Path) -> None:
    """Install something of this machine, without its dependencies."""
    options = (
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--ignore-installed",
        "--no-compile",
        "--quiet",
    )
    editable = ("--editable",) if str(what).startswith("editable:") else ()
    target = str(what).removeprefix("editable:")
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", *options, *editable, target, cwd=python.parent)

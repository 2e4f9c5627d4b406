"""The invariants of docs/architecture.md that are about which code may know which."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "ddpdoctor"

MAY_IMPORT = {
    "model.py": ("ddpdoctor.recorder.where", "ddpdoctor.figures"),
    "figures.py": (),
    "check.py": (
        *("ddpdoctor.model", "ddpdoctor.text", "ddpdoctor.page"),
        *("ddpdoctor.frameworks", "ddpdoctor.failures"),
    ),
    "failures.py": (),
    "excuses.py": ("ddpdoctor.model",),
    "page.py": (),
    "frameworks.py": (),
    "secret.py": (),
    "text.py": ("ddpdoctor.model", "ddpdoctor.secret"),
    "launch.py": (),
    "program": (
        "ddpdoctor.model",
        "ddpdoctor.program",
        "ddpdoctor.recorder.launchers",
        "ddpdoctor.recorder.operations",
    ),
    "report": (
        "ddpdoctor.figures",
        "ddpdoctor.model",
        "ddpdoctor.check",
        "ddpdoctor.page",
        "ddpdoctor.registry",
        "ddpdoctor.text",
        "ddpdoctor.report",
    ),
}
"""Of ddpdoctor itself; everything of the standard library is free."""

MUST_NOT_IMPORT = {
    "host": ("ddpdoctor.cli", "ddpdoctor.group", "ddpdoctor.job", "ddpdoctor.report", "torch"),
    "blame": tuple(
        f"ddpdoctor.{room}" for room in ("cli", "report", "host", "group", "job", "hang", "trace", "logs")
    ),
    "group": ("ddpdoctor.cli", "ddpdoctor.report"),
    "job": ("ddpdoctor.cli", "ddpdoctor.report", "ddpdoctor.group"),
    "hang": (*(f"ddpdoctor.{room}" for room in ("cli", "report", "group", "job", "trace", "logs")), "torch"),
    "runs": ("ddpdoctor.cli", "ddpdoctor.report", "ddpdoctor.job", "torch"),
    "bench": ("ddpdoctor.cli", "ddpdoctor.report"),
    "fix": (*(f"ddpdoctor.{room}" for room in ("cli", "report", "host", "group", "job")), "torch"),
    "bench/bench_run.py": ("torch",),
    "recorder": ("ddpdoctor",),
    "recorder/__init__.py": ("torch",),
    "recorder/after_import.py": ("torch",),
    "recorder/inject": ("torch",),
    "logs": tuple(f"ddpdoctor.{room}" for room in ("cli", "report", "host", "group", "job", "hang", "trace")),
    "trace": (
        "ddpdoctor.cli",
        "ddpdoctor.report",
        "ddpdoctor.group",
        "ddpdoctor.job",
        "ddpdoctor.logs",
        "torch",
    ),
    "../checks": ("ddpdoctor.cli", "ddpdoctor.report", "ddpdoctor.job"),
    "report": ("ddpdoctor.cli", "ddpdoctor.host", "ddpdoctor.group", "ddpdoctor.job", "torch"),
}


def imports(file: Path) -> Iterator[str]:
    """What a file imports, wherever in it, as ``package.module`` or ``package.module.name``."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # The recorder is loaded under another name, so its own modules are relative to each other.
            assert node.level == 0 or file.is_relative_to(PACKAGE / "recorder"), (
                f"{file} has a relative import"
            )
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(place: str) -> list[Path]:
    path = PACKAGE / place
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def within(module: str, packages: Iterable[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


def imports_of(file: Path, *packages: str) -> list[str]:
    """What a file imports from these packages."""
    return [module for module in imports(file) if within(module, packages)]


@pytest.mark.parametrize("place", MAY_IMPORT)
def test_the_vocabulary_knows_nothing_above_it(place):
    for file in files_of(place):
        ours = imports_of(file, "ddpdoctor")
        assert [module for module in ours if not within(module, MAY_IMPORT[place])] == [], file


@pytest.mark.parametrize("place", MUST_NOT_IMPORT)
def test_a_room_knows_only_the_rooms_below_it(place):
    for file in files_of(place):
        assert imports_of(file, *MUST_NOT_IMPORT[place]) == [], file


def rooms() -> dict[str, set[str]]:
    """Which packages, and modules at the top, each package or top module of ddpdoctor imports."""
    known: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        modules = imports_of(file, "ddpdoctor")
        known.setdefault(room, set()).update(module.split(".")[1] for module in modules if "." in module)
    return {room: {other for other in others if other in known} - {room} for room, others in known.items()}


def test_no_packages_import_each_other():
    imported = rooms()
    while free := [room for room, others in imported.items() if not others]:
        imported = {room: others - {*free} for room, others in imported.items() if others}
    assert imported == {}, "packages that import each other, or one that does"


COLLECTIVES = frozenset(
    {"all_reduce", "all_gather", "barrier", "broadcast", "gather", "scatter", "reduce_scatter"}
)
COLLECTIVES |= {
    "all_to_all",
    "send",
    "recv",
    "isend",
    "irecv",
    "monitored_barrier",
    "new_group",
    "init_process_group",
}
DRAWS = frozenset({"rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal_", "uniform_"})
DRAWS |= {"random_", "manual_seed", "seed"}


def calls(file: Path) -> Iterator[str]:
    """The names that a file calls as attributes: ``all_reduce`` of ``dist.all_reduce(x)``."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


def test_the_recorder_issues_no_collective_and_draws_no_random_number():
    for file in files_of("recorder"):
        if (
            "rehearse" not in file.parts
        ):  # which stands in for a backend, and computes what the script asked for
            called = {name.removesuffix("_object").removesuffix("_into_tensor") for name in calls(file)}
            assert COLLECTIVES.isdisjoint(called), file
            assert DRAWS.isdisjoint(calls(file)), file


def test_only_the_program_parses_what_the_user_wrote():
    """``fix`` edits its text, and the others read ddpdoctor's own files."""
    calls_of = {file: {*calls(file)} for place in (".", "../checks") for file in files_of(place)}
    parses = {file for file, names in calls_of.items() if "parse" in names and "ast" in imports(file)}
    rooms = {file.resolve().relative_to(ROOT).parts[1] for file in parses}
    assert rooms <= {"program", "fix", "check.py", "page.py", "demos"}, rooms


def test_nobody_imports_a_check_by_name():
    for place in ("ddpdoctor", "checks", "tests", "benchmarks"):
        for file in (ROOT / place).rglob("*.py"):
            assert imports_of(file, "ddpdoctor.checks", "checks") == [], file


def strings(file: Path) -> Iterator[str]:
    """The strings in a file's code; what stands alone in a line is documentation."""
    tree = ast.parse(file.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_no_check_is_known_by_its_code_outside_of_checks():
    patches = Path("fix", "patches")  # each names the findings that it cures
    for file in files_of("."):
        codes = [text for text in strings(file) if re.search(r"DD\d{3}", text)]
        assert codes == [] or file.parent.match(f"*/{patches}"), file


def test_the_bundled_trainer_imports_nothing_of_ours():
    for file in (ROOT / "sample_trainer").rglob("*.py"):
        assert imports_of(file, "ddpdoctor") == [], file


def loads_torch(*arguments: str, names: str = "torch") -> bool:
    """Whether a fresh interpreter has imported torch, or tried to, after these arguments; or what else is named."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return re.search(rf"\| +({names})$", done.stderr, re.MULTILINE) is not None


@pytest.mark.slow
def test_the_probe_sees_an_import_of_torch():
    assert loads_torch("-c", "import torch")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["checks"], ["explain", "DD002"], ["train", "--list"], ["runs", "list"]],
)
def test_the_command_line_starts_without_torch(arguments):
    assert not loads_torch("-m", "ddpdoctor", *arguments)


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--list"], ["runs", "list"]])
def test_the_command_line_starts_without_what_only_pictures_need(arguments):
    assert not loads_torch("-m", "ddpdoctor", *arguments, names="jinja2|matplotlib|numpy|rich")


def test_the_host_is_examined_without_torch():
    assert not loads_torch("-m", "ddpdoctor", "check", "--select", "host")


def test_every_benchmark_is_run_by_all_and_has_its_limit_in_the_documents():
    table = (ROOT / "docs" / "architecture.md").read_text()
    runs_all = (ROOT / "benchmarks" / "all.py").read_text()
    for file in (ROOT / "benchmarks").glob("*.py"):
        if file.stem not in ("all", "limits"):
            assert f"`benchmarks/{file.name}` |" in table, file.name
            assert f'"{file.stem}": ' in runs_all, file.name
            assert "from limits import tell" in file.read_text(), file.name

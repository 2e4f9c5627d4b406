"""A plugin of pytest: the fixture ``ddp_check`` runs a training script and fails with what is found in it.

pytest loads it wherever ddpdoctor is installed, so it imports nothing before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ddpdoctor.api import Report

_MARKER = "ddp_expect"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ddpdoctor", "training scripts (ddp_check)")
    group.addoption("--ddp-nproc", type=int, metavar="N", help="Ranks of each ddp_check. [default: 2]")
    group.addoption(
        "--ddp-rehearse", action="store_true", help="Run scripts for GPUs and NCCL on the CPU, with gloo."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line(
        "markers", f"{_MARKER}(*codes): the codes or names of checks whose findings ddp_check expects"
    )


@pytest.fixture
def ddp_check(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Run a script under torchrun and examine what its ranks do: ``ddp_check("train.py", "--epochs", "1", nproc=2)``.

    The arguments are those of :func:`ddpdoctor.check`; the host and the process group are examined only where
    ``select`` asks for it. A script is looked for in the working directory, then beside the test. The report becomes a
    section of the test's output. The test fails where something is found that no ``ddp_expect`` names, where what one
    names is not found, and where the script could not be examined.
    """

    def run(script: Any, *args: object, **options: Any) -> Report:
        from ddpdoctor.api import check

        asked = request.config.getoption
        given = {"nproc": asked("ddp_nproc") or 2, "rehearse": asked("ddp_rehearse"), "select": ["run"]}
        report = check(_script(script, request.path.parent), *args, **{**given, **options})
        request.node.add_report_section("call", "ddpdoctor", str(report))
        expected = {str(name) for marker in request.node.iter_markers(_MARKER) for name in marker.args}
        if wrong := _wrong(report, expected):
            pytest.fail("\n\n".join(wrong), pytrace=False)
        return report

    return run


def _script(script: Any, folder: Path) -> Any:
    beside = folder / script if isinstance(script, str | Path) else None
    return beside if beside and beside.exists() and not Path(script).exists() else script


def _wrong(report: Report, expected: set[str]) -> list[str]:
    """What is to be said where the report is not as expected."""
    from ddpdoctor import registry
    from ddpdoctor.report.detail import full_text

    checks = {name: registry.by_code(name) for name in expected}
    codes = {check.code if check else name for name, check in checks.items()}
    findings = [finding for finding in report.problems if finding.code not in codes]
    wrong = [full_text(finding, 80) for finding in findings]
    missing = sorted(codes - {finding.code for finding in report.findings})
    wrong += [f"{code} was expected and not found" for code in missing]
    if report.exit_status == 2:
        wrong.append("\n".join(("the script could not be examined", *report.notes)))
    return wrong

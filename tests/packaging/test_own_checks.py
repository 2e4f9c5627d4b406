"""The example of docs/own-checks.md, installed."""

import json

from tests.packaging.conftest import pip_install, run
from tests.packaging.documents import blocks_of


def test_the_example_package_adds_its_check(environment, wheel, tmp_path):
    package = tmp_path / "our-cluster-checks"
    package.mkdir()
    (pyproject,) = blocks_of("docs/own-checks.md", "toml")
    module, module_test = blocks_of("docs/own-checks.md", "python")
    (package / "pyproject.toml").write_text(pyproject)
    (package / "our_cluster_checks.py").write_text(module)

    python = environment(wheel)
    pip_install(python, package)

    listed = json.loads(run(python, "-m", "ddpdoctor", "checks", "--format", "json", cwd=tmp_path))
    assert "scratch-mounted" in {check["name"] for check in listed}
    assert "/scratch is missing" in run(python, "-m", "ddpdoctor", "explain", "OC001", cwd=tmp_path)
    run(python, "-c", module_test, cwd=tmp_path)
    options = ("--select", "OC001", "--fail-on", "fail", "--format", "json")
    code = f"import sys; from ddpdoctor.cli import run; sys.exit(run(['check', *{options!r}]) - 1)"
    report = json.loads(run(python, "-c", code, cwd=tmp_path))
    assert [finding["code"] for finding in report["findings"]] == ["OC001"]

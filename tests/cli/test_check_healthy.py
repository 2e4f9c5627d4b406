"""A healthy machine: exit 0 and no finding above info, whatever the number of ranks; and the whole of a report."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ddpdoctor.job.guarded import new_run_id, start
from tests.support import faults
from tests.support.command import SECONDS, Done, apart, check, ddpdoctor, environment, free_port
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

AS_INSTALLED = "import sys; sys.path[:] = filter(None, sys.path); from ddpdoctor.__main__ import main; main()"
"""The command as its console script runs it: unlike ``python -m``, it does not search the current directory."""

GROUP = (
    "DD001",
    "DD004",
    "DD014",
    "DD103",
    "DD106",
    "DD206",
    "DD228",
    "DD301",
    "DD304",
    "DD313",
)


@pytest.mark.parametrize("nproc", [1, 5])
def test_nothing_is_found(nproc: int, tmp_path: Path) -> None:
    done = check("--nproc", str(nproc), cwd=tmp_path)
    assert done.codes() == set(), done.out
    assert (done.status, done.err) == (0, "")
    outcomes = {code: done.outcome(code)["outcome"] for code in GROUP}
    expected = {"pass", "skip"} if nproc == 1 else {"pass"}
    assert set(outcomes.values()) <= expected, outcomes
    assert "error" not in {line["outcome"] for line in done.report["checks"]}
    for line in done.report["checks"]:
        assert (line["outcome"] == "skip") == bool(line["reason"]), line


def test_the_whole_check_with_the_trainer(tmp_path: Path) -> None:
    forked = whole_check(tmp_path / "forked", {})
    anew = whole_check(tmp_path / "anew", {"PYTHONSAFEPATH": "1"})
    assert [line["outcome"] for line in anew.report["checks"]] == [
        line["outcome"] for line in forked.report["checks"]
    ]


def whole_check(folder: Path, variables: dict[str, str], *arguments: str) -> Done:
    here, temporary = folder / "here", folder / "temporary"
    here.mkdir(parents=True)
    temporary.mkdir()
    (here / "random.py").write_text("raise SystemExit('a script of the user, not to be imported')")
    usual = ["--nproc", "2", "--select", "DD0,DD2,DD3", "--master-port", str(free_port())]
    words = ["check", *usual, *arguments, "--format", "json", "--quiet"]
    ran = subprocess.run(
        [sys.executable, "-c", AS_INSTALLED, *words],
        cwd=here,
        env=environment({**variables, "TMPDIR": str(temporary)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    done = Done(ran.returncode, ran.stdout, ran.stderr)
    assert done.status == 0, done.out
    assert "loss fell" in done.outcome("DD229")["text"]
    assert "after the training run" in done.outcome("DD206")["text"]
    assert done.report["run"]["folder"] is None
    assert list(temporary.iterdir()) == []
    return done


def test_a_second_launch_on_the_same_port_is_a_finding(tmp_path: Path) -> None:
    """The first is a real torchrun that waits; the second check names it and examines the group all the same."""
    port = free_port()
    waits = tmp_path / "waits.py"
    waits.write_text("import time; print('up', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "torch.distributed.run", "--master-port", str(port), str(waits)]
    with start(
        command,
        folder=tmp_path,
        run_id=new_run_id(),
        environ=environment({}),
        grace=1.0,
        stdout=tmp_path / "out",
        stderr=tmp_path / "out",
    ):
        wait_until(lambda: "up" in (tmp_path / "out").read_text(), SECONDS)
        done = check("--nproc", "2", "--master-port", str(port), cwd=tmp_path)
    assert done.codes() == {"DD002"}, done.out
    (finding,) = (one for one in done.report["findings"] if one["code"] == "DD002")
    assert "waits.py" in finding["evidence"][0]["text"]
    assert done.outcome("DD313")["outcome"] == "pass"


def test_junit_of_a_real_run_counts_every_check(tmp_path: Path) -> None:
    output = tmp_path / "report.xml"
    done = ddpdoctor(
        *("check", "--select", "host", *apart(), "--format", "junit", "--output", str(output), "-q"),
        cwd=tmp_path,
    )
    assert (done.status, done.out, done.err) == (0, "", "")
    suites = ElementTree.parse(output).getroot()
    cases = list(suites.iter("testcase"))
    assert len(cases) == int(suites.get("tests") or next(suites.iter("testsuite")).get("tests") or 0) > 10


def test_secrets_are_masked_in_every_format(tmp_path: Path) -> None:
    secret = "hf_" + "Q7w" * 10
    env = {
        "NCCL_SOKET_IFNAME": secret,
        "MY_API_TOKEN": "correct-horse-battery",
        "WORLD_SIZE": "correct-horse-battery",
    }
    kinds = ("json", "junit", "sarif", "github", "html")
    files = [word for kind in kinds for word in ("--format", kind, "--output", kind)]
    done = ddpdoctor("check", "--select", "host", "--format", "terminal", *files, cwd=tmp_path, env=env)
    assert done.status == 1, done.out
    for kind, report in {
        "terminal": done.out,
        **{kind: (tmp_path / kind).read_text() for kind in kinds},
    }.items():
        assert "NCCL_SOKET_IFNAME" in report, kind
        for hidden in (secret, "correct-horse-battery"):
            assert hidden not in report + done.err, kind


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    env = {"NCCL_DEBUGG": "\x1b[31mred\x07", "GLOO_SOCKET_IFNAME": "eth\x1b[2J"}
    done = ddpdoctor("check", "--select", "host", cwd=tmp_path, env=env)
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


def test_ranks_that_are_late_to_join_and_print_are_no_finding(tmp_path: Path) -> None:
    env = faults.break_torch(tmp_path / "site", faults.LATE_TO_JOIN)
    prints = "print('hello'); os.system('echo hello; echo hello >&2')"
    with (tmp_path / "site" / "sitecustomize.py").open("a") as file:
        file.write(f"if 'DDPDOCTOR_RUN' in os.environ:\n    {prints}\n")
    done = ddpdoctor("check", "--nproc", "2", *apart(), "--format", "json", "--quiet", cwd=tmp_path, env=env)
    assert (done.status, done.err, done.codes()) == (0, "", set()), done.out
    assert "hello" not in done.out
    assert done.report["exit_status"] == 0

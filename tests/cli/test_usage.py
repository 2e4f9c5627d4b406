"""Bad input: one clear line on stderr, exit status 2, no traceback, nothing started."""

import tempfile
from pathlib import Path

import pytest

from ddpdoctor.cli import run

SCALE = ("--rehearse", "--world-size", "64")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "--nproc", "0"], "'--nproc': 0 is less than 1"),
        (["check", "--nproc", "100000"], "--nproc 100000 is not between 1 and"),
        (["check", "--nproc", "two"], "'two' is not a number"),
        (["check", "--select", "DD999"], "unknown check 'DD999'"),
        (["check", "--ignore", "DD002,nope"], "unknown check 'nope'"),
        (["check", "--output", "/nosuch/report.xml"], "--output '/nosuch/report.xml' cannot be written"),
        (["check", "--output", "."], "--output '.' cannot be written: Is a directory"),
        (["check", "--checkpoint-dir", "{file}"], "is a file, not a folder"),
        (["check", "--master-port", "70000"], "'--master-port': 70000 is not between 1 and 65535"),
        (["check", "--timeout", "0"], "'--timeout': 0 is not between"),
        (["check", "--timeout", "nan"], "'--timeout': nan is not between"),
        (["check", "--timeout", "inf"], "'--timeout': inf is not between"),
        (["check", "--nnodes", "3:2", "{file}"], "'3:2' is neither a number of nodes nor MIN:MAX"),
        (["check", "--nnodes", "2"], "--nnodes above 1 requires --master-addr"),
        (["check", "--nnodes", "2", "--node-rank", "2"], "--node-rank 2 is not a node of --nnodes 2"),
        (
            ["check", "--format", "xml"],
            "'xml' is not one of 'terminal', 'json', 'junit', 'sarif', 'github', 'html'",
        ),
        (["check", "nosuch.py"], "'nosuch.py' does not exist"),
        (
            ["check", "bash", "run.sh"],
            "'bash' does not exist; for a launch line, put -- before it: -- bash run.sh",
        ),
        (["train.py"], "(for a script: ddpdoctor check SCRIPT"),
        (["check", "--epochs", "2", "train.py"], "the script's own options stand behind it"),
        (["check", "{binary}"], "is not a Python script"),
        (["check", "{prose}"], "is not a Python script"),
        (["check", "{shell}", "x"], "ddpdoctor check -- bash "),
        (["check", "{folder}"], "is a folder without a __main__.py"),
        (["check", "/dev/null"], "'/dev/null' is not a regular file"),
        (["check", "-m"], "-m requires the name of a module"),
        (["check", "-m", "no_such.module", "--help"], "no module named 'no_such'"),
        (["check", "--", "no-such-launcher", "train.py"], "'no-such-launcher': command not found"),
        (["check", "--", "train.py"], "for a script, leave out --"),
        (["check", "--batches", "0", "{file}"], "'--batches': 0 is less than 1"),
        (["check", "--time-limit", "0", "{file}"], "'--time-limit': 0 is not between"),
        (["check", "--hang-after", "1", "{file}"], "'--hang-after': 1 is not between 2 and"),
        (["check", "--rehearse"], "--rehearse requires a script"),
        (["check", "--full"], "--full requires a script"),
        (["check", "--rehearse", "--world-size", "64"], "--rehearse requires a script"),
        (["check", "--world-size", "64", "{file}"], "--world-size requires --rehearse"),
        (["check", "--rehearse", "--world-size", "1", "{file}"], "'--world-size': 1 is not between 2 and"),
        (["check", *SCALE, "--nnodes", "2", "{file}"], "--world-size and --nnodes exclude each other"),
        (["check", *SCALE, "--", "torchrun", "{file}"], "requires a script or a module, not a command line"),
        (["check", "--trace", "{folder}"], "is not a run folder that ddpdoctor kept"),
        (["check", "--trace", "{folder}", "{file}"], "is not a run folder that ddpdoctor kept"),
        (["check", "--nosuch"], "--nosuch"),
        (["check", "--fail-on", "info"], "'info' is neither 'fail' nor 'warn'"),
        (["watch"], "watch requires a job"),
        (["watch", "--nnodes", "2", "{file}"], "--nnodes above 1 requires --master-addr"),
        (["nosuch"], "nosuch"),
        (["explain", "DD999"], "DD999"),
        (["explain"], "CODE"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {
        "file": b"",
        "binary": b"\x7fELF\0\xff",
        "prose": b"just some prose\n",
        "shell": b"echo hi; exit 4\n",
    }
    places = {name: tmp_path / f"a-{name}{'.sh' if name == 'shell' else ''}" for name in contents}
    for name, content in contents.items():
        places[name].write_bytes(content)
    status = run([argument.format(folder=tmp_path, **places) for argument in arguments])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("ddpdoctor: error: ")
    assert says in err
    assert err.count("\n") == 1


def test_no_temporary_folder_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    assert run(["check"]) == 2
    space = "a folder with 16 MiB of free space"
    expected = f"/tmp and /var/tmp cannot be written; name a folder for temporary files by TMPDIR, {space}"
    assert capsys.readouterr().err == f"ddpdoctor: error: {expected}\n"


def test_without_arguments_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: ddpdoctor" in capsys.readouterr().out

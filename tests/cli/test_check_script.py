"""``ddpdoctor check SCRIPT`` and ``-- LAUNCH LINE`` as a user types them: awkward scripts, each with a clear result,
and nothing left of them."""

import os
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import Done, apart, ddpdoctor, free_port
from tests.support.processes import running_below, wait_until

pytestmark = pytest.mark.slow

GROUP = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
"""
TRAINING = """
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()
"""


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    script = folder / name
    script.write_text("\n".join(textwrap.dedent(part) for part in text.split("\n\n")))
    return script


def line_of(script: Path, text: str) -> int:
    return next(number for number, line in enumerate(script.read_text().splitlines(), 1) if text in line)


def check(folder: Path, *words: str, options: tuple[str, ...] = (), nproc: int = 2, **env: str) -> Done:
    """Run it without the examination of host and group, in an own temporary folder."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    arguments = (
        "check",
        "--nproc",
        str(nproc),
        "--ignore",
        "host,group",
        "--format",
        "json",
        "-q",
        *options,
        *words,
    )
    done = ddpdoctor(*arguments, cwd=folder, env={"TMPDIR": str(temporary), **env})
    assert not running_below(folder)
    # What plain torchrun and mp.spawn leave, they leave under us too.
    own = ("ddpdoctor-", "torchelastic_", "pytorch-errorfile-") if "--" in words[:1] else ("ddpdoctor-",)
    assert [one for one in temporary.iterdir() if not one.name.startswith(own)] == []
    return done


def only_finding(done: Done) -> dict:
    assert done.status == 1, done.out + done.err
    (finding,) = (one for one in done.report["findings"] if one["level"] != "info")
    return finding


# --- awkward scripts -----------------------------------------------------------------------------------------


def test_arguments_are_the_scripts_and_ten_megabytes_are_passed_on_whole(tmp_path: Path) -> None:
    prints = "    print(rank, sys.argv[1:])\n    sys.stdout.write(('x' * 79 + '\\n') * 65000)\n"
    write(tmp_path, GROUP + prints + "    dist.barrier()\n")
    mine = ["--log", "x", "--nproc", "9", "-h", "--", "--help", "-m", "--redirects=0"]
    done = check(tmp_path, "train.py", *mine)
    assert done.status == 0, done.out + done.err[-10_000:]
    for rank in (0, 1):
        assert f"[rank {rank}] {rank} {mine}\n" in done.err
        assert done.err.count(f"[rank {rank}] {'x' * 79}\n") == 65000
    assert done.report["run"]["script"] == "train.py"


def test_own_hook_and_directory_and_a_closed_stdout_and_a_fork(tmp_path: Path) -> None:
    write(
        tmp_path,
        GROUP
        + """
    sys.excepthook = lambda kind, *rest: os.write(2, b'my own hook\\n')
    dist.barrier()
    sys.stdout.close()
    if os.fork() == 0:
        os._exit(0)
    os.chdir('/')
    raise KeyError('split')
    """,
    )
    done = check(tmp_path, "train.py", nproc=1)
    headline = only_finding(done)["headline"]
    assert headline == "rank 0 failed with KeyError \"'split'\" in the training run"
    assert only_finding(done)["where"]["line"] == 13
    assert "my own hook\n" in done.err


def test_an_exit_status_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, f"{GROUP}    dist.barrier()\n    os._exit(5)\n")
    finding = only_finding(check(tmp_path, "train.py", nproc=1))
    assert finding["headline"] == "rank 0 ended with exit status 5 in the training run"
    assert finding["where"]["line"] == 8


def test_a_syntax_error(tmp_path: Path) -> None:
    write(tmp_path, "import torch\ndef f(:\n")
    finding = only_finding(check(tmp_path, "train.py", nproc=1))
    assert finding["headline"].startswith("rank 0 failed with SyntaxError")
    assert (finding["where"]["file"], finding["where"]["line"]) == ("train.py", 2)


def test_a_missing_module_before_torch_is_imported(tmp_path: Path) -> None:
    write(tmp_path, "import no_such_module_of_mine\nimport torch\n")
    finding = only_finding(check(tmp_path, "train.py", nproc=1))
    assert "ModuleNotFoundError \"No module named 'no_such_module_of_mine'\"" in finding["headline"]
    assert finding["where"]["line"] == 1


def test_an_argument_that_the_script_needs(tmp_path: Path) -> None:
    parse = "import argparse\nimport torch\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n"
    write(tmp_path, parse)
    finding = only_finding(check(tmp_path, "train.py", nproc=1))
    assert finding["headline"] == "rank 0 ended with exit status 2 in the training run"
    assert "the following arguments are required: data" in finding["evidence"][0]["text"]
    assert "ARGS..." in finding["fix"]


def test_no_process_group_is_no_bill_of_health(tmp_path: Path) -> None:
    write(tmp_path, "import torch\nprint('hello')\n")
    done = check(tmp_path, "train.py", nproc=1)
    assert (done.status, done.codes()) == (2, set())
    assert done.report["run"]["incomplete"] == "not distributed: init_process_group was never called"


def test_a_script_that_asks_for_a_gpu_gets_the_hint(tmp_path: Path) -> None:
    write(tmp_path, GROUP + "    torch.nn.Linear(2, 2).cuda()\n")
    done = check(tmp_path, "train.py", nproc=1, CUDA_VISIBLE_DEVICES="")
    assert done.status == 1
    assert any("ddpdoctor check --rehearse" in note for note in done.report["notes"])


def test_the_time_limit_ends_a_full_run_and_is_no_finding(tmp_path: Path) -> None:
    endless = "    while True:\n        dist.all_reduce(torch.ones(1))\n        time.sleep(0.01)\n"
    write(tmp_path, GROUP + endless)
    done = check(tmp_path, "train.py", options=("--full", "--time-limit", "12"))
    assert done.codes() == set()
    assert any("was ended after 12 s" in note for note in done.report["notes"]), done.out


# --- launch lines --------------------------------------------------------------------------------------------

SPAWNS = """
import os, sys
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    os.write(1, f"spawned {rank}\\n".encode())  # at once: where nothing is buffered, print writes in pieces
    dist.barrier()
    if rank == 1:
        raise LookupError("gone")
    dist.barrier()


if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
"""


def test_mp_spawn_behind_two_dashes(tmp_path: Path) -> None:
    write(tmp_path, SPAWNS)
    done = check(tmp_path, "--", sys.executable, "train.py", str(free_port()))
    finding = only_finding(done)
    assert finding["headline"] == "rank 1 failed with LookupError 'gone' in the training run"
    assert (finding["where"]["file"], finding["where"]["line"]) == (
        "train.py",
        line_of(tmp_path / "train.py", "raise LookupError"),
    )
    assert "spawned 0\n" in done.err
    assert done.report["run"]["nproc"] == 2


def test_a_shell_script_with_the_command_of_torchrun(tmp_path: Path) -> None:
    write(tmp_path, GROUP + TRAINING)
    run = (
        f"cd {tmp_path} && {sys.executable} -m torch.distributed.run --standalone --nproc-per-node 3 train.py"
    )
    (tmp_path / "run.sh").write_text(run)
    done = check(tmp_path, "--", "bash", "run.sh")
    assert done.codes() == {"DD103"}, done.out
    assert done.report["run"]["nproc"] == 3
    assert done.report["run"]["shortened"] is None


def test_a_process_that_is_killed_has_said_what_it_said(tmp_path: Path) -> None:
    write(tmp_path, "import os, signal\nprint('still here')\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = check(tmp_path, "--", sys.executable, "train.py")
    assert done.status == 1
    assert "still here\n" in done.err


def test_a_line_that_fails_without_torch(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo 'no such partition' >&2; exit 4\n")
    finding = only_finding(check(tmp_path, "--", "bash", "run.sh"))
    assert "exit status 4" in finding["headline"]
    assert "no such partition" in finding["evidence"][0]["text"]


# --- a whole check, and what is kept of it --------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A whole check of a script, and its folder."""

    project: Path
    script: Path
    done: Done

    @property
    def folder(self) -> str:
        (folder,) = re.findall(r"^kept:  (.*?)(?: \(.*\))?$", self.done.out, re.MULTILINE)
        return folder

    @property
    def line(self) -> int:
        """Of the training loop."""
        return line_of(self.script, "for x, y")

    def again(self, *options: str) -> Done:
        """The check, from its folder."""
        arguments = ("check", "--trace", self.folder, *options, "--format", "json")
        return ddpdoctor(*arguments, cwd=self.project)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    project = tmp_path_factory.mktemp("kept")
    for name in ("package", "temporary"):
        (project / name).mkdir()
    script = write(project / "package", GROUP + TRAINING)
    words = ("check", "--nproc", "2", *apart(), "--select", "DD0,DD1,DD2", "-m", "package.train")
    done = ddpdoctor(*words, cwd=project, env={"TMPDIR": str(project / "temporary")})
    assert done.status == 1, done.out + done.err
    return Kept(project, script, done)


def test_host_group_and_script_then_the_same_from_its_folder(kept: Kept) -> None:
    done = kept.done
    assert "FAIL[DD103]" in done.out
    assert f"  --> package/train.py:{kept.line} in <module>" in done.out
    assert "[rank 0]" not in done.out
    assert " -m package.train\n" in done.out
    assert "cut short" not in done.out
    again = kept.again("--format", "html", "--output", "report.html")
    assert again.codes() == {"DD103"}, again.out
    assert again.report["run"]["script"] == "-m package.train"
    page = (kept.project / "report.html").read_text()
    for shown_there in ("What each rank did", "Samples drawn", "same order as before"):
        assert shown_there in page


def test_a_run_compared_with_an_earlier_one(kept: Kept) -> None:
    again = kept.again("--compare", str(kept.folder), "--format", "html", "--output", "both.html")
    assert again.report["run"]["compared"] == {"gone": [], "new": [], "still_there": ["DD103"]}
    page = (kept.project / "both.html").read_text()
    for shown_there in ("Before and after", "still there", "Before: Who saw which data"):
        assert shown_there in page
    refused = kept.again("--compare", "absent")
    assert refused.status == 2
    assert "'absent' is not a run folder" in refused.err


def test_silenced_by_a_comment_and_by_the_configuration(kept: Kept) -> None:
    text, configuration = kept.script.read_text(), kept.project / "pyproject.toml"
    try:
        kept.script.write_text(text.replace("in loader:", "in loader:  # ddpdoctor: ignore[DD103]"))
        done = kept.again()
        assert (done.status, done.codes()) == (0, set()), done.out
        (note,) = (note for note in done.report["notes"] if "silenced" in note)
        assert f"DD103 at package/train.py:{kept.line}" in note
        assert done.outcome("DD103")["reason"] == "1 finding silenced"
        kept.script.write_text(text)
        configuration.write_text('[tool.ddpdoctor.per-file-ignores]\n"package/tr*.py" = ["DD103"]\n')
        configured = kept.again()
        assert (configured.status, configured.codes()) == (0, set())
    finally:
        kept.script.write_text(text)
        configuration.unlink(missing_ok=True)


def test_lines_of_a_script_in_an_installed_package_are_named(tmp_path: Path) -> None:
    """As in a container into which ``pip install .`` has put it."""
    package = tmp_path / "site-packages" / "acme"
    package.mkdir(parents=True)
    training = textwrap.indent(textwrap.dedent(GROUP) + textwrap.dedent(TRAINING), "    ")
    loop = package / "engine.py"
    loop.write_text(f"def fit():\n{training}")
    (package / "train.py").write_text("from acme import engine\n\nengine.fit()\n")
    finding = only_finding(check(tmp_path, "-m", "acme.train", PYTHONPATH=str(package.parent)))
    assert finding["code"] == "DD103"
    at = (finding["where"]["file"], finding["where"]["line"], finding["where"]["function"])
    assert at == ("site-packages/acme/engine.py", line_of(loop, "for x, y"), "fit")


def test_a_group_that_breaks_keeps_the_script_from_running(tmp_path: Path) -> None:
    write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    done = ddpdoctor(
        *("check", "--nproc", "2", *apart(), "--backend", "nccl", "--format", "json", "-q", "train.py"),
        cwd=tmp_path,
        env={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.status == 1
    assert not (tmp_path / "ran").exists()
    assert "which DD" in done.outcome("DD304")["reason"] or "was not run" in done.outcome("DD304")["reason"]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    import signal
    import subprocess

    from tests.support.command import environment

    write(tmp_path, GROUP + "    print('up', flush=True)\n    time.sleep(600)\n")
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "ddpdoctor", "check", "--ignore", "host,group", "-q", "train.py"]
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment({"TMPDIR": str(tmp_path / "temporary")}),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    wait_until(lambda: "[rank 1] up" in (tmp_path / "out").read_text(), 120)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert not running_below(tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []

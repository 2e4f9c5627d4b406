"""Jobs that stand still on a GPU: looked at from outside, watched, and ended by NCCL's own timeout."""

import os
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.gpu.support import HERE, examined, keep, on_gpu
from tests.support.command import environment

pytestmark = on_gpu

DUMPS = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "NCCL_DEBUG": "INFO"}


@contextmanager
def job(name, folder, **variables):
    """A job of one rank, from when it stands still."""
    command = ["torchrun", "--standalone", "--nproc-per-node", "1", str(HERE / "hangs" / name)]
    with (folder / "output.log").open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(variables),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            time.sleep(20)  # imports of torch and NCCL's first connection; then it waits for two minutes
            assert process.poll() is None, (folder / "output.log").read_text()
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
            keep(f"{name}.log", (folder / "output.log").read_text())


@pytest.mark.parametrize("name", ["kernel.py", "collective.py"])
def test_a_job_that_waits_for_a_kernel_is_named_at_its_line(name, tmp_path):
    line = 1 + next(
        number
        for number, text in enumerate((HERE / "hangs" / name).read_text().splitlines())
        if "# waits here" in text
    )
    with job(name, tmp_path, **DUMPS) as process:
        done = examined(f"hang-{name}", "hang", str(process.pid), cwd=tmp_path)
    places = [finding["where"] for finding in done.report["findings"] if finding["where"]]
    assert [place["line"] for place in places] == [line], done.out


def test_a_timeout_of_nccl_is_explained(tmp_path):
    command = ["torchrun", "--standalone", "--nproc-per-node", "1", str(HERE / "hangs" / "collective.py")]
    variables = {**DUMPS, "SECONDS_TO_WAIT": "10", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "dump_")}
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    (tmp_path / "output.log").write_text(ran.stdout + ran.stderr)
    keep("timeout-of-nccl.log", ran.stdout + ran.stderr)
    done = examined("timeout-of-nccl", "explain", "output.log", cwd=tmp_path)
    assert done.codes(), ran.stderr
    dumps = sorted(tmp_path.glob("dump_*"))
    assert dumps, "NCCL's flight recorder left no dump"
    looked = examined("dump-of-nccl", "hang", "--flight-recorder", str(tmp_path), cwd=tmp_path)
    assert looked.report["findings"], looked.err


def test_a_job_that_is_watched_ends_with_the_reason(tmp_path):
    words = ("--hang-after", "20", str(HERE / "hangs" / "collective.py"))
    done = examined("watch-collective", "watch", "--nproc", "1", *words, cwd=tmp_path)
    assert done.status == 1
    assert done.codes(), done.out


def test_an_interface_that_does_not_exist_is_named(tmp_path):
    env = {"NCCL_SOCKET_IFNAME": "nosuch0", "NCCL_DEBUG": "INFO"}
    done = examined("interface", "check", "--nproc", "1", "--backend", "nccl", cwd=tmp_path, env=env)
    assert "DD701" in done.codes()

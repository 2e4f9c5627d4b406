"""A check works on machines that lack what others have: containers, and clocks that jump."""

import sys
import time
from pathlib import Path

import pytest

from tests.support import without_syscalls
from tests.support.command import ddpdoctor
from tests.support.machines import on_machine

pytestmark = pytest.mark.slow

TRAIN = """
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(PAUSE)
dist.destroy_process_group()
"""
CHECK = ["check", "--quiet", "--nproc", "2", "--select", "group,run", "train.py"]
NO_SHM = """
mkdir {folder}/dev
mount -t tmpfs none {folder}/dev
for name in null zero full random urandom; do
    touch {folder}/dev/$name
    mount --bind /dev/$name {folder}/dev/$name
done
ln -s /proc/self/fd {folder}/dev/fd
mount --move {folder}/dev /dev
"""
READ_ONLY = """
for folder in / /dev/shm /tmp /var/tmp {work}; do
    mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
done
mount -t tmpfs none {folder}
cd {work}
"""
NOBODY = ("--reuid", "54321", "--regid", "54321", "--clear-groups")
MAY_READ = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
"""The interpreter may lie in root's own folder."""
CLOCK = """
import os, time
real, at = time.time, float(os.environ["JUMP_AT"])
time.time = lambda: real() + (JUMP if time.monotonic() > at else 0.0)
time.time_ns = lambda: int(time.time() * 1e9)
"""


@pytest.fixture
def work(tmp_path) -> Path:
    folder = tmp_path / "wörk dir"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN.replace("PAUSE", "0"))
    return folder


def finds_nothing(done) -> None:
    assert (done.status, "No problem found" in done.out) == (0, True), done.out + done.err


@pytest.mark.root
def test_without_shared_memory(work, tmp_path):
    finds_nothing(on_machine(NO_SHM.format(folder=tmp_path), CHECK, work))


@pytest.mark.root
def test_where_nothing_can_be_written_but_temporary_files(work, tmp_path):
    (tmp_path / "temporary").mkdir()
    setup = READ_ONLY.format(work=f"'{work}'", folder=tmp_path / "temporary")
    finds_nothing(on_machine(setup, CHECK, work, {"TMPDIR": str(tmp_path / "temporary")}))


@pytest.mark.root
def test_a_user_without_a_name_and_a_home(work, tmp_path):
    tmp_path.chmod(0o777)
    for folder in (tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    wrap = ("env", "-u", "HOME", "-u", "USER", "-u", "LOGNAME", "setpriv", *NOBODY, *MAY_READ)
    finds_nothing(on_machine("true", CHECK, work, {"TMPDIR": str(tmp_path)}, wrap))


@pytest.mark.root
def test_where_processes_may_not_be_traced_nor_namespaces_made(work):
    finds_nothing(on_machine("true", CHECK, work, wrap=(sys.executable, without_syscalls.__file__)))


@pytest.mark.parametrize("jump", ["-7200", "7200"])
def test_a_clock_that_jumps(jump, work, tmp_path):
    (work / "train.py").write_text(TRAIN.replace("PAUSE", "0.5"))
    (tmp_path / "sitecustomize.py").write_text(CLOCK.replace("JUMP if", f"{jump} if"))
    env = {"PYTHONPATH": str(tmp_path), "JUMP_AT": str(time.monotonic() + 8)}
    finds_nothing(ddpdoctor(*CHECK, cwd=work, env=env))


@pytest.mark.root
def test_where_temporary_files_have_less_room_than_the_script_writes(work, tmp_path):
    """As in containers and on nodes of clusters that keep /tmp in memory."""
    saves = "torch.save(torch.zeros(32 << 20), f'part-{dist.get_rank()}.pt')\ndist.destroy_process_group()"
    (work / "train.py").write_text(TRAIN.replace("PAUSE", "0").replace("dist.destroy_process_group()", saves))
    small = tmp_path / "small"
    small.mkdir()
    before = sorted(Path("/var/tmp").glob("ddpdoctor-*"))
    setup = f"mount -t tmpfs -o size=100m none {small}\ncd '{work}'"
    done = on_machine(setup, CHECK, work, {"TMPDIR": str(small)})
    finds_nothing(done)
    assert "part-0.pt (128 MiB)" in done.out
    assert sorted(Path("/var/tmp").glob("ddpdoctor-*")) == before
    assert [path.name for path in work.iterdir()] == ["train.py"]

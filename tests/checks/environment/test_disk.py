import subprocess
import sys

import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed

OUT = Launch(checkpoint_dir="/out")


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"absent": ["/out"]}, "checkpoint folder '/out' does not exist"),
        ({"files": {"/out": "text"}}, "checkpoint folder '/out' is a file"),
        ({"write_errors": {"/out": "ENOSPC"}}, "checkpoint folder '/out' is full"),
        ({"write_errors": {"/out": "EDQUOT"}}, "checkpoint folder '/out' is full"),
        (
            {"write_errors": {"/out": "EROFS"}},
            "checkpoint folder '/out' cannot be written: read-only file system",
        ),
        (
            {"write_errors": {"/out": "EACCES"}},
            "checkpoint folder '/out' cannot be written: permission denied",
        ),
    ],
)
def test_a_folder_that_takes_no_checkpoint(changes, headline):
    finding = only_finding("DD019", Source.HOST, recorded_host(launch=OUT, **changes))
    assert (finding.level, finding.headline) == (Level.FAIL, headline)


@pytest.mark.parametrize(
    ("disk", "headline"),
    [
        ({"total": 10**12, "free": 100 << 20}, "checkpoint folder '/out' has 100 MiB left"),
        ({"total": 10**12, "free": 10**11, "free_inodes": 3}, "checkpoint folder '/out' has 3 inodes left"),
    ],
)
def test_little_space_is_information(disk, headline):
    finding = only_finding("DD019", Source.HOST, recorded_host(launch=OUT, disks={"/out": disk}))
    assert (finding.level, finding.headline) == (Level.INFO, headline)


def test_a_folder_that_can_be_written_passes(tmp_path):
    assert (
        passed("DD019", Source.HOST, recorded_host(launch=OUT)).text == "'/out' can be written, 466 GiB free"
    )


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "headline"),
    [("size=512k", "is full"), ("size=8m,ro", "cannot be written: read-only file system")],
)
def test_a_real_mount(tmp_path, options, headline):
    program = (
        "import sys; from ddpdoctor.host import Host, System; from ddpdoctor.launch import Launch;"
        "from tests.support.judging import only_finding; from ddpdoctor.model import Source;"
        "print(only_finding('DD019', Source.HOST, Host(Launch(checkpoint_dir=sys.argv[1]), System())).headline)"
    )
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip().endswith(headline)

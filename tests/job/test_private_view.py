"""The mounts that a private view is made of."""

from pathlib import Path

import pytest

from ddpdoctor.job.private_view import mounts

INFO = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw - devtmpfs devtmpfs rw
40 27 8:1 / {data} rw,relatime shared:1 master:2 - xfs /dev/sdb rw
41 27 8:2 / /read-only rw,relatime - ext4 /dev/sdc ro
42 27 0:30 / /without-source rw - tmpfs  rw
43 27 8:3 / /work rw - ext4 /dev/sdd rw
44 43 0:31 / /work ro - tmpfs above ro
"""


@pytest.mark.parametrize(
    ("written", "path"),
    [("/data", "/data"), (r"/my\040data", "/my data"), ("/\u65e5".encode().decode("latin-1"), "/\u65e5")],
)
def test_each_mount_that_is_seen(written: str, path: str) -> None:
    found = {str(mount.point): (mount.kind, mount.writable) for mount in mounts(INFO.format(data=written))}
    assert found == {
        "/": ("ext4", True),
        "/proc": ("proc", True),
        "/dev": ("devtmpfs", True),
        path: ("xfs", True),
        "/read-only": ("ext4", False),
        "/without-source": ("tmpfs", True),
        "/work": ("tmpfs", False),
    }


def test_what_lies_outside_comes_first() -> None:
    points = [mount.point for mount in mounts(INFO.format(data="/work/data"))]
    assert points.index(Path("/work")) < points.index(Path("/work/data"))

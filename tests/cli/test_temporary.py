"""Where run folders are put."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ddpdoctor.cli import temporary


@pytest.mark.root
def test_layers_lie_where_files_can_share_their_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("mkfs.xfs") is None:
        pytest.skip("needs mkfs.xfs")
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    try:
        monkeypatch.setattr(temporary, "places", lambda: [str(tmp_path), str(disk)])
        monkeypatch.setattr(temporary, "_ROOM", 1 << 20)
        monkeypatch.chdir(tmp_path)
        assert temporary.place_with_room() == str(tmp_path)
        monkeypatch.chdir(disk)
        assert temporary.place_with_room() == str(disk)
        monkeypatch.chdir(tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)

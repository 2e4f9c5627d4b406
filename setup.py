"""What pyproject.toml cannot say; everything else is there.

``checks/`` is a package at the top of the repository and ``ddpdoctor.checks`` where it is installed. With
SOURCE_DATE_EPOCH, the same files give the same bytes: setuptools does so for wheels only, and by the modes of files.
"""

import gzip
import os
import tarfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

ours = find_packages(include=["ddpdoctor", "ddpdoctor.*"])
checks = [f"ddpdoctor.{name}" for name in find_packages(include=["checks", "checks.*"])]


os.umask(0o022)  # of what setuptools writes itself


class ReproducibleWheel(bdist_wheel):
    def write_wheelfile(self, *arguments, **named):
        super().write_wheelfile(*arguments, **named)
        for file in filter(Path.is_file, Path(self.bdist_dir).rglob("*")):
            file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


class ReproducibleSdist(sdist):
    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if not epoch or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = int(epoch), 0, 0, "", ""
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            return entry

        path = Path(f"{base_name}.tar.gz")
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=plain)
        return str(path)


setup(
    packages=[*ours, *checks, "ddpdoctor.sample_trainer"],
    cmdclass={"bdist_wheel": ReproducibleWheel, "sdist": ReproducibleSdist},
)

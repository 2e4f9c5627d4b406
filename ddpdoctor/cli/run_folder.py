"""The folder of a run: what its processes write, and what helps to find out why."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ddpdoctor.cli.request import Request
from ddpdoctor.model import Report
from ddpdoctor.redact import mask_files


class RunFolder:
    """A new folder; a context manager that removes it, unless something was found, or it was asked for."""

    def __init__(self, request: Request) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ddpdoctor-"))
        self._request = request
        self._stays = False

    def keep(self, report: Report, here: bool = False) -> Report:
        """The report, which names the folder where it stays.

        Args:
            here: whether it then moves into the current directory.
        """
        wanted = report.exit_status != 0 or self._request.options.keep
        self._stays = wanted and any(self.path.iterdir())
        if self._stays:
            mask_files(self.path, self._request.host.environ)
            if here:
                name = time.strftime("ddpdoctor-hang-%Y%m%d-%H%M%S")
                self.path = Path(shutil.move(self.path, Path.cwd() / name))
        return replace(report, run={**report.run, "folder": str(self.path) if self._stays else None})

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stays:
            shutil.rmtree(self.path, ignore_errors=True)

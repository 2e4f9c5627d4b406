"""Notes in a run's folder that it was stopped: its ranks are ended by signals, and cannot say so themselves."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from ddpdoctor.files import write_whole
from ddpdoctor.runs.run_reader import DIED, RUN, read_run


def note_stopped(folder: Path) -> None:
    """Let it say so, if it has begun, is not over, and no process has it any more."""
    path = folder / RUN
    with suppress(OSError, ValueError):
        if read_run(folder).status == DIED:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            description = {**json.loads(path.read_text()), "status": "stopped", "finished": now}
            write_whole(path, json.dumps(description, indent=2) + "\n")

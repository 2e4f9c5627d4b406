"""Runs the command on a machine that lacks something: a mount namespace of its own, another user, a filter."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.command import SECONDS, Done, environment


def on_machine(
    setup: str,
    arguments: Sequence[str],
    cwd: Path,
    env: dict[str, str] | None = None,
    wrap: Sequence[str] = (),
) -> Done:
    """Run ``ddpdoctor`` where shell commands have changed the mounts, which nobody else sees.

    Args:
        setup: the commands.
        wrap: words that stand before the command, such as ``setpriv --reuid 4321``.
    """
    script = f'set -e; {setup}\nexec "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *wrap]
    done = subprocess.run(
        [*command, sys.executable, "-m", "ddpdoctor", *arguments],
        cwd=cwd,
        env=environment(env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return Done(done.returncode, done.stdout, done.stderr)

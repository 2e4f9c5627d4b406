"""Patches for findings: what would have to change in the user's files, and a second run that verifies them.

Only ``source.py`` imports libcst, which is an extra: :func:`unavailable` says whether it is there.
"""

from __future__ import annotations

import importlib.util


def unavailable() -> str | None:
    """Why there can be no patch, as a sentence with the command that helps; None where there can."""
    if importlib.util.find_spec("libcst") is None:
        return "patches require libcst: pip install 'ddpdoctor[fix]'"
    return None


class CannotPatch(Exception):
    """A patch is not possible; the message says why, in a clause."""

"""Patches for findings: what would have to change in the user's files, and a second run that verifies them."""


class CannotPatch(Exception):
    """A patch is not possible; the message says why, in a clause."""

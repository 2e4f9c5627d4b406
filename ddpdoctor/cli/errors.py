"""What a command raises where it can't do what it was asked."""

CANNOT_EXAMINE = 2
"""The exit status where nothing was examined: wrong usage, or a launch that failed for reasons of our own."""

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT, as a shell has it."""


class UsageError(Exception):
    """The command line asks for something that is not there; one line on stderr, exit status 2."""

"""One file for each thing that is patched, each with ``install(session)``."""

NAMES: tuple[str, ...] = (
    "groups",
    "ends",
    "processes",
    "loaders",
)
"""The files, in the order in which they are installed."""

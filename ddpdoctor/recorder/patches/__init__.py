"""One file for each thing that is patched, each with ``install(session)``."""

NAMES: tuple[str, ...] = (
    "groups",
    "ends",
    "ddp",
    "conversions",
    "forward",
    "backward",
    "optimizer",
    "scaler",
    "clip",
    "scheduler",
    "losses",
    "collectives",
    "processes",
    "loaders",
    "workers",
    "saves",
    "loads",
    "states",
    "files",
    "loggers",
    "printed",
    "exact",
)
"""The files, in the order in which they are installed."""

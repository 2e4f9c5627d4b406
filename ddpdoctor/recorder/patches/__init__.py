"""One file for each thing that is patched, each with ``install(session)``; a new file is found by itself."""

import os


def names() -> list[str]:
    """The files, in alphabetical order; one that has to come after another installs that first."""
    files = os.listdir(os.path.dirname(os.path.abspath(__file__)))
    return sorted(file[:-3] for file in files if file.endswith(".py") and not file.startswith("_"))

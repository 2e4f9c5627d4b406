"""Runs scripts of tests/sick and tests/healthy under other names, and prints those whose verdict is another one.

python -m tests.renamed                  # all of them, some ten minutes on two CPUs
python -m tests.renamed dd502 post_local # those whose names begin so
"""

import sys
import tempfile
from pathlib import Path

from tests.renamed.verdicts import NAMES, SCRIPTS, difference


def main(beginnings: tuple[str, ...]) -> int:
    """Returns how many verdicts depend on names."""
    count = 0
    for script in SCRIPTS:
        for kind, names in NAMES.items() if not beginnings or script.stem.startswith(beginnings) else ():
            with tempfile.TemporaryDirectory(prefix="renamed-") as folder:
                text = difference(script, names, Path(folder))
            count += bool(text)
            if text:
                print(f"{script.stem}, {kind} names: {text}", flush=True)
    print(f"{count} verdicts depend on names")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))

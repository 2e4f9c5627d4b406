"""``python -m tests.scale [NAME...]``: every script at scale; takes some minutes on two cores."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.scale.corpus import HEALTHY, SICK, found_at_scale, is_silent

SIZES = (8, 64, 512)


def _results(names: set[str], folder: Path) -> Iterator[tuple[str, str]]:
    for script in SICK:
        if not names or script.stem in names:
            yield f"{script.stem} on 64 ranks", found_at_scale(script, folder / script.stem)
            yield f"{script.stem} on 2 ranks", is_silent(script, 2, folder / script.stem)
    for script in HEALTHY:
        for size in SIZES if not names or script.stem in names else ():
            yield f"{script.stem} on {size} ranks", is_silent(script, size, folder / script.stem)


def main() -> int:
    """Run them; the exit status is 1 where one is not as it should be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for what, complaint in _results(set(sys.argv[1:]), Path(folder)):
            print("wrong" if complaint else "ok   ", what, flush=True)
            if complaint:
                wrong += 1
                print(complaint)
    print(f"{wrong} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""Makes the table of docs/fix.md: what patches do for the scripts of tests/sick, each with one problem.

python -m tests.fix                        # all, a quarter of an hour on two CPUs
python -m tests.fix dd103 dd201_module     # those whose names begin so, with their diffs
"""

import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from ddpdoctor.model import Finding, Patch
from tests.fix.forked import patched

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fix.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
HEAD = "| code | script | patch | what came out |\n|---|---|---|---|\n"


def row(script: Path) -> tuple[str, Finding | None]:
    """The row of a script, and the finding that it is about."""
    with tempfile.TemporaryDirectory(prefix="patched-") as place:
        result = patched(script, Path(place))
    code = script.stem.partition("_")[0].upper()
    finding = next((finding for finding in result.findings if finding.code == code), None)
    patch = finding.patch if finding else None
    if finding is None:
        return _row(code, script, "", "not found"), None
    why = result.refusals[0].partition(": ")[2] if result.refusals else ""
    return _row(code, script, patch.title if patch else "", _outcome(patch) if patch else why), finding


def _outcome(patch: Patch) -> str:
    return f"{'proven' if patch.proven else 'sketch'}: {patch.outcome}"


def _row(code: str, script: Path, title: str, outcome: str) -> str:
    name = script.stem.partition("_")[2].replace("_", " ")
    cells = (text.replace("|", "\\|") or "-" for text in (code, name, title, outcome))
    return f"| {' | '.join(cells)} |\n"


def scripts(prefixes: Iterable[str]) -> list[Path]:
    """The sick scripts whose names begin with one of these."""
    return (
        sorted((ROOT / "tests" / "sick").glob("dd*.py"))
        if not prefixes
        else [path for prefix in prefixes for path in sorted((ROOT / "tests" / "sick").glob(f"{prefix}*.py"))]
    )


def main(prefixes: list[str]) -> None:
    """Print the rows; of all scripts, write them into the page."""
    rows, proven = [], 0
    for script in scripts(prefixes):
        began = time.monotonic()
        line, finding = row(script)
        rows.append(line)
        patch = finding.patch if finding else None
        proven += bool(patch and patch.proven)
        print(f"{time.monotonic() - began:5.1f} s  {line}", end="", flush=True)
        if prefixes and patch:
            print(patch.diff)
    print(f"{proven} of {len(rows)} proven")
    if not prefixes:
        PAGE.write_text(TABLE.sub(lambda _: HEAD + "".join(rows), PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])

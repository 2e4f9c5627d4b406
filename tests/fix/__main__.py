"""Makes the table of docs/fix.md: what patches do for the scripts of tests/sick, each with one problem.

python -m tests.fix                        # all, a quarter of an hour on two CPUs
python -m tests.fix dd103 dd201_module     # those whose names begin so, with their diffs
python -m tests.fix --healthy              # the scripts of tests/healthy, for which nothing may be proposed
"""

import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddpdoctor.fix.patches import patch_names
from ddpdoctor.model import Finding, Patch
from tests.fix.forked import patched
from tests.healthy.test_healthy import SCRIPTS as HEALTHY

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fix.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=\n?<!-- end of table -->)", re.DOTALL)
HEAD = "| code | script | patch | what came out |\n|---|---|---|---|\n"


def row(script: Path) -> tuple[str, Finding | None]:
    """The row of a script, and the finding that it is about."""
    code = _code(script)
    with tempfile.TemporaryDirectory(prefix="patched-") as place:
        result = patched(script, Path(place), asked=[code])
    finding = next((finding for finding in result.findings if finding.code == code), None)
    patch = finding.patch if finding else None
    if finding is None:
        return _row(code, script, "", "not found"), None
    why = (finding.unpatched if patch_names(code) else "") or ""
    return _row(code, script, patch.title if patch else "", _outcome(patch) if patch else why), finding


def _outcome(patch: Patch) -> str:
    outcome = patch.outcome.partition("; ")[0]  # without what shows now that the ranks train
    return f"{'verified' if patch.verified else 'sketch'}: {outcome}"


def _row(code: str, script: Path, title: str, outcome: str) -> str:
    cells = (text.replace("|", "/") or "-" for text in (code, _name(script), title, outcome))
    return f"| {' | '.join(cells)} |\n"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def _code(script: Path) -> str:
    return script.stem.partition("_")[0].upper()


def _name(script: Path) -> str:
    return script.stem.partition("_")[2].replace("_", " ")


def scripts(prefixes: Iterable[str]) -> list[Path]:
    """The sick scripts whose names begin with one of these; all where there are none."""
    every = sorted((ROOT / "tests" / "sick").glob("dd*.py"))
    begins = tuple(prefixes)
    return [path for path in every if path.stem.startswith(begins)] if begins else every


def write_rows(rows: Mapping[str, str]) -> None:
    """Put rows into the page's table, by the names of their scripts; rows of scripts that are gone go."""
    page = PAGE.read_text()
    match = TABLE.search(page)
    assert match, "the page has no table"
    names = {(_code(script), _name(script)): script.stem for script in scripts([])}
    old = {
        names[cells[0], cells[1]]: f"{line}\n"
        for line in match[0].splitlines()
        if line.startswith("| DD") and tuple((cells := _cells(line))[:2]) in names
    }
    every = {**old, **rows}
    verified = sum("| verified: " in row for row in every.values())
    patched = sum(_cells(row)[2] != "-" for row in every.values())
    curable = [row for row in every.values() if patch_names(_cells(row)[0])]
    summary = (
        f"Of {len(every)} scripts, {patched} get a patch, and {verified} of these are verified: "
        f"{100 * verified // len(curable)} % of the {len(curable)} whose checks know a patch.\n\n"
    )
    table = summary + HEAD + "".join(every[name] for name in sorted(every))
    PAGE.write_text(page[: match.start()] + table + page[match.end() :])


def healthy(prefixes: Iterable[str]) -> int:
    """How many patches are proposed for healthy scripts whose names begin with one of these; they are printed."""
    chosen = [path for path in HEALTHY if path.stem.startswith(tuple(prefixes) or "")]
    proposed = 0
    for script in chosen:
        with tempfile.TemporaryDirectory(prefix="patched-") as place:
            result = patched(script, Path(place))
        patches = [finding.patch for finding in result.findings if finding.patch]
        proposed += len(patches)
        for patch in patches:
            print(f"{script.name}: {patch.title}", patch.diff, sep="\n")
        for finding in result.findings:
            if finding.unpatched:
                print(f"{script.name}: no patch for {finding.code}: {finding.unpatched}")
    print(f"{proposed} patches are proposed for {len(chosen)} healthy scripts")
    return proposed


def main(prefixes: list[str]) -> None:
    """Print the rows, with the diffs where not all scripts are asked for, and write them into the page."""
    rows = {}
    for script in scripts(prefixes):
        began = time.monotonic()
        rows[script.stem], finding = row(script)
        print(f"{time.monotonic() - began:5.1f} s  {rows[script.stem]}", end="", flush=True)
        if prefixes and finding and finding.patch:
            print(finding.patch.outcome, finding.patch.diff, sep="\n")
    write_rows(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--healthy"]:
        sys.exit(bool(healthy(sys.argv[2:])))
    main(sys.argv[1:])

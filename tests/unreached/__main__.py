"""``python -m tests.unreached [SCRIPT...]``: what the source alone shows, as the table in docs/results.md has it.

The pairs of this folder, the sick and the healthy scripts, those of frameworks and the bundled trainer; or each finding
in these scripts.
"""

import argparse
import contextlib
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.model import Source
from tests.unreached.test_pairs import ALL, judged

TESTS = Path(__file__).parents[1]
CODES = {check.code for check in registry.select(Source.CODE)}


def main() -> None:
    """Print the table, or what was found in the scripts that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.unreached")
    parser.add_argument("scripts", nargs="*", type=Path)
    if scripts := parser.parse_args().scripts:
        for script in scripts:
            for it in judged(script):
                print(f"{script}: {it.code} {it.where.file}:{it.where.line} {it.headline}", flush=True)
        return
    print("| scripts | scripts | named without a run | others found |\n|---|---|---|---|")
    for name, right in (("wrong", False), ("right", True)):
        named = others = 0
        for pair in ALL:
            with tempfile.TemporaryDirectory() as folder:
                pair.write(Path(folder), right=right)
                codes = [it.code for it in judged(Path(folder, "train.py"))]
            named += pair.code in codes
            others += any(it != pair.code for it in codes)
        print(f"| pairs of `tests/unreached`, {name} | {len(ALL)} | {named} | {others} |", flush=True)
    sick = {it: re.match(r"dd\d+", it.name) for it in sorted((TESTS / "sick").glob("dd*.py"))}
    own = {it: match[0].upper() for it, match in sick.items() if match and match[0].upper() in CODES}
    tell("sick, of the checks that read the source", own)
    tell(
        "sick, of other checks",
        {it: match[0].upper() for it, match in sick.items() if match and it not in own},
    )
    for folder in ("healthy", "frameworks"):
        scripts = [it for it in (TESTS / folder).glob("*.py") if not it.name.startswith(("_", "test_"))]
        tell(folder, dict.fromkeys(scripts, ""))
    tell("the bundled trainer", dict.fromkeys((TESTS.parent / "sample_trainer").glob("*.py"), ""))


def tell(what: str, scripts: dict[Path, str]) -> None:
    """A row: scripts whose code was found, and what else was, by script."""
    named, others = 0, list[str]()
    for script, code in scripts.items():
        with contextlib.suppress(FileNotFoundError):
            codes = {it.code for it in judged(script)}
            named += code in codes
            others += [f"{it} in {script.stem}" for it in sorted(codes - {code})]
    print(f"| {what} | {len(scripts)} | {named} | {words(others)} |", flush=True)


def words(others: Iterable[str]) -> str:
    """What was found beside the codes of the scripts."""
    return ", ".join(others) or "0"


if __name__ == "__main__":
    main()

"""``ddpdoctor demo``: a script with a problem is written, checked and explained, then its corrected twin."""

import difflib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.cli.check import run_check
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import CheckOptions, DemoOptions
from ddpdoctor.cli.report_output import write_out, writing
from ddpdoctor.demos import Demo, demos
from ddpdoctor.redact import quote
from ddpdoctor.report.detail import hang
from ddpdoctor.report.pages import page_of
from ddpdoctor.report.terminal import width_of_stdout
from ddpdoctor.text import did_you_mean

_USUAL = "forward-bypassed"
"""The check whose demo is shown where none is named: wrong results, and no error."""
_FIXED = "_fixed"


def run_demo(options: DemoOptions) -> int:
    """Show one problem; returns 0 where the script was found sick and its twin healthy. UsageError where no demo shows
    this check, or its files cannot be written."""
    if options.list_demos:
        write_out(_listing())
        return 0
    demo = _demo(options.subject or _USUAL)
    folder = Path(options.folder)
    sick, healthy = f"{demo.path.stem}.py", f"{demo.path.stem}{_FIXED}.py"
    _write(folder, {sick: demo.sick, healthy: demo.healthy})
    write_out(_introduction(demo, folder / sick))
    with _inside(folder):
        found_in_script = _check(sick, options)
        write_out(_correction(demo, sick, healthy))
        found_in_twin = _check(healthy, options)
    write_out(f"\nnext:  ddpdoctor explain {demo.code}\n       ddpdoctor demo --list\n")
    return int((found_in_script, found_in_twin) != (1, 0))


def _listing() -> str:
    rows = [(demo.code, _check_of(demo).name, demo.summary) for demo in demos()]
    width = max(len(name) for _, name, _ in rows)
    lines = [hang(f"{code}  {name:{width}}  ", text, width_of_stdout()) for code, name, text in rows]
    return "".join(f"{line}\n" for row in lines for line in row)


def _check_of(demo: Demo) -> Check:
    check = registry.by_code(demo.code)
    assert check is not None, f"{demo.path} is named for no check"
    return check


def _demo(subject: str) -> Demo:
    known = {demo.code: demo for demo in demos()}
    if (check := registry.by_code(subject)) is not None and check.code in known:
        return known[check.code]
    names = [*known, *(_check_of(demo).name for demo in known.values())]
    hint = did_you_mean(subject, names, "`ddpdoctor demo --list` lists them all")
    raise UsageError(f"no demo shows {quote(subject)}; {hint}")


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the scripts; what somebody changed is theirs. UsageError where they cannot be written."""
    with writing(folder, "--folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            file = folder / name
            if file.exists() and file.read_text(encoding="utf-8", errors="replace") != text:
                raise UsageError(f"{quote(str(file))} was changed; --folder names another folder")
            file.write_text(text, encoding="utf-8")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _check(script: str, options: DemoOptions) -> int:
    sys.stdout.flush()
    return run_check(CheckOptions(words=[script], nproc=2, ignore=["host,group"], quiet=options.quiet))


def _introduction(demo: Demo, script: Path) -> str:
    check, width = _check_of(demo), width_of_stdout()
    lines = [
        f"{check.code} {check.name}: {page_of(check).summary}",
        *hang("", f"{script}: {demo.summary}", width),
        "",
        _command(script.name),
        "",
    ]
    return "\n".join(lines) + "\n"


def _correction(demo: Demo, sick: str, healthy: str) -> str:
    """What is different in the twin, and how it is checked."""
    before, after = demo.sick.splitlines(), demo.healthy.splitlines()
    changes = difflib.unified_diff(before, after, sick, healthy, n=1, lineterm="")
    return "\n".join(("", *changes, "", _command(healthy), "")) + "\n"


def _command(script: str) -> str:
    return f"$ ddpdoctor check --nproc 2 --ignore host,group {script}"

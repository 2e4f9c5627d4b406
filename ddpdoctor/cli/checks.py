"""``ddpdoctor checks`` and ``ddpdoctor explain CODE``."""

import difflib
import json
import os
import re
import sys
from collections.abc import Sequence

from ddpdoctor import registry
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import ChecksOptions
from ddpdoctor.cli.report_output import write_out
from ddpdoctor.redact import quote
from ddpdoctor.report import pages
from ddpdoctor.report.terminal import width_of_stdout
from ddpdoctor.text import listing

_ENDLESS = 10_000
"""In a pipe a check is one line, for grep."""


def run_checks(options: ChecksOptions) -> int:
    """Write the list."""
    return write(list_checks(options.format.value))


def list_checks(format: str) -> str:
    """Every check: code, name, where it looks, and what is so where nothing is wrong."""
    checks = registry.all_checks()
    if format == "json":
        return json.dumps(pages.list_values(checks), indent=2)
    return pages.text_list(checks, width_of_stdout() if sys.stdout.isatty() else _ENDLESS)


def write(text: str) -> int:
    """Write a page to stdout; returns the exit status."""
    write_out(text + "\n")
    return 0


def is_subject(subjects: Sequence[str]) -> bool:
    """Whether a page is asked for: by the code or name of a check, or by what is neither that nor a file."""
    (first, *others) = subjects
    if others:
        return False
    return registry.by_code(first) is not None or not (first == "-" or os.path.lexists(first))


def explain(code: str) -> str:
    """The page of the check with this code or name; UsageError, with the nearest, where there is none."""
    if (check := registry.by_code(code)) is None:
        no_file = ", and there is no such file" if os.sep in code or "." in code else ""
        raise UsageError(f"no check has the code or name {quote(code)}{no_file}; {_nearest(code)}")
    return pages.text_page(check, width_of_stdout())


def _nearest(wanted: str) -> str:
    checks, text = registry.all_checks(), wanted.lower()
    near = [check for check in checks if check.code.lower().startswith(text)]
    if not near and not re.fullmatch(r"dd\d*", text):
        known = {name.lower(): check for check in checks for name in (check.code, check.name)}
        near = [known[name] for name in difflib.get_close_matches(text, known, n=3)]
    names = list(dict.fromkeys(f"{check.code} ({check.name})" for check in near))
    return f"did you mean {listing(names)}?" if names else "`ddpdoctor checks` lists them all"

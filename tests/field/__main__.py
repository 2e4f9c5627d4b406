"""Runs the scripts of the field study, and compares the findings with what was read by eye.

python -m tests.field --scripts /tmp/scripts                    # all batches; not part of pytest's suite
python -m tests.field --scripts /tmp/scripts --batch 1 -k mnist # some
python -m tests.field --scripts /tmp/scripts --judge            # compare the reports of the last runs again

FOLDER has each repository as OWNER+NAME: the folder or file that the manifest names, at its commit. The packages
of a batch have to be installed beside ddpdoctor. Reports, output and run folders go to FOLDER/.reports.
Ends with 1 where a finding is false, misleading or at another line, or a defect was missed; with 2 where a script
is not there.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.field.comparison import Contact, compare, totals
from tests.field.data import make
from tests.field.manifest import FOLDER, Batch, Script, batches

SECONDS = 570
OPTIONS = ("--rehearse", "--ignore", "host,group", "--keep", "--quiet", "--format", "json")
"""The host and the live group are this machine's matter, not the script's."""


class Missing(Exception):
    """A script was not fetched, or is another one than that of the manifest."""


def main() -> int:
    arguments = parser().parse_args()
    contacts = []
    try:
        for batch, script in chosen(arguments):
            if not arguments.judge:
                run(script, arguments.scripts)
            elif not is_reported(script, arguments.scripts):
                print(f"{batch.number}  {script.name}  not run", flush=True)
                continue
            contact = judge(script, arguments.scripts)
            print(line_of(batch, contact), flush=True)
            contacts.append(contact)
    except Missing as reason:
        print(reason, file=sys.stderr)
        return 2
    print("", *(f"{number:4d}  {name}" for name, number in totals(contacts).items()), sep="\n")
    wrong = (
        contact.other_line or contact.misleading or contact.false or contact.missed for contact in contacts
    )
    return int(any(wrong))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Check public scripts, and compare with what was read by eye."
    )
    parser.add_argument("--scripts", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--batch", type=int, metavar="N")
    parser.add_argument(
        "-k", dest="name", default="", metavar="NAME", help="scripts whose name has this part"
    )
    parser.add_argument(
        "--judge", action="store_true", help="compare the reports that are there; run nothing"
    )
    return parser


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[Batch, Script]]:
    for batch in batches():
        if arguments.batch in (None, batch.number):
            yield from ((batch, script) for script in batch.scripts if arguments.name in script.name)


def run(script: Script, scripts: Path) -> None:
    """Check a fresh copy of a script; its report goes to ``.reports/NAME.json``, its output to ``NAME.txt``."""
    reports = scripts.absolute() / ".reports"
    place = reports / script.name
    shutil.rmtree(place, ignore_errors=True)
    fetched = scripts / script.repository.replace("/", "+")
    if not (fetched / script.path).is_file():
        raise Missing(f"{fetched / script.path} is not there: fetch {script.repository} at {script.commit}")
    (place / "tmp").mkdir(parents=True)
    shutil.copytree(fetched, place / "repository", symlinks=True)
    prepare(script, place / "repository")
    folder, environment = place / "repository" / script.folder, environment_of(script, place / "tmp")
    if script.before:
        subprocess.run(shlex.split(script.before), cwd=folder, env=environment, check=True, timeout=SECONDS)
    report = reports / f"{script.name}.json"
    report.unlink(missing_ok=True)
    options = (*OPTIONS, "--output", str(report), *script.options)
    command = [sys.executable, "-m", "ddpdoctor", "check", *options, "--", *shlex.split(script.launch)]
    with (reports / f"{script.name}.txt").open("w") as output:
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )


def prepare(script: Script, repository: Path) -> None:
    """Make a copy of a repository smaller, and its data."""
    for change in script.changes:
        file = repository / (change.file or script.path)
        lines = file.read_text().splitlines(keepends=True)
        if change.old not in lines[change.line - 1]:
            raise Missing(f"{file} is another version: {change.old!r} is not in line {change.line}")
        lines[change.line - 1] = lines[change.line - 1].replace(change.old, change.new)
        file.write_text("".join(lines))
    for recipe in script.data:
        make(repository / script.folder, recipe)


def environment_of(script: Script, temporary: Path) -> dict[str, str]:
    bin_folder = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(FOLDER / "stand_ins"),
        "FIELD_STUBS": ",".join(script.stubs),
        "TMPDIR": str(temporary),
        "HOME": str(temporary),
        "WANDB_MODE": "disabled",
        "HF_HUB_OFFLINE": "1",
    }


def judge(script: Script, scripts: Path) -> Contact:
    report = report_of(script, scripts)
    if not is_reported(script, scripts):
        return Contact(script, status=2, missed=tuple(defect for defect in script.defects if defect.by_eye))
    return compare(script, json.loads(report.read_text()))


def report_of(script: Script, scripts: Path) -> Path:
    return scripts.absolute() / ".reports" / f"{script.name}.json"


def is_reported(script: Script, scripts: Path) -> bool:
    """Whether a check came to its end; its report is an empty file until then."""
    report = report_of(script, scripts)
    return report.exists() and report.stat().st_size > 0


def line_of(batch: Batch, contact: Contact) -> str:
    """One script: what was said, and what was not."""
    kinds = {
        "true": contact.true,
        "other line": contact.other_line,
        "MISLEADING": contact.misleading,
        "FALSE": contact.false,
        "MISSED": tuple(f"{'/'.join(defect.codes)} ({defect.what})" for defect in contact.missed),
    }
    parts = [f"{kind}: {', '.join(places)}" for kind, places in kinds.items() if places]
    said = "; ".join(parts) or ("silent" if contact.silent else "nothing above info")
    return f"{batch.number}  {contact.script.name}  status {contact.status}  {said}"


if __name__ == "__main__":
    sys.exit(main())

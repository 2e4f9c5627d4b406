"""``ddpdoctor clean``: lists and removes the run folders that checks kept."""

import tempfile

from ddpdoctor.cli.options import CleanOptions
from ddpdoctor.cli.report_output import write_out
from ddpdoctor.cli.run_folder import KeptFolder, kept_folders, remove
from ddpdoctor.redact import quote
from ddpdoctor.text import age, plural, size


def run_clean(options: CleanOptions) -> int:
    """Remove what is old enough, tell of each folder, and return the exit status."""
    every = kept_folders()
    old = [folder for folder in every if folder.age >= options.older_than]
    lines, gone = [], []
    for folder in old:
        done = (options.only_list and not folder.in_use) or remove(folder)
        gone += [folder] if done else []
        lines.append(_line(folder, _word(folder, done, options)))
    write_out("\n".join([*lines, _summary(gone, len(every) - len(gone), options)]) + "\n")
    return 0


def _word(folder: KeptFolder, done: bool, options: CleanOptions) -> str:
    if done:
        return "would remove" if options.only_list else "removed"
    return "in use" if folder.in_use else "not removed"


def _line(folder: KeptFolder, word: str) -> str:
    return f"{word:<12}  {quote(str(folder.path))[1:-1]}  {size(folder.bytes)}, {age(folder.age)} old"


def _summary(gone: list[KeptFolder], left: int, options: CleanOptions) -> str:
    verb = "would remove" if options.only_list else "removed"
    total = f", {size(sum(folder.bytes for folder in gone))}" if gone else ""
    newer = " or newer; --older-than 0 removes the newer ones, too" if options.older_than else ""
    others = f"; {plural(left, 'run folder')} left (in use{newer})" if left else ""
    place = quote(tempfile.gettempdir())[1:-1]
    return f"{verb} {plural(len(gone), 'run folder')} in {place}{total}{others}"

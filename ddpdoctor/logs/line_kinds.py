"""What a line is by its wording and its label alone: a word of an end, a text of help, the number of a task."""

from __future__ import annotations

import re
from itertools import islice

_DONE = re.compile(r"(?i)\b(?:finished|completed?|done|saved)\b")
_WORD = re.compile(r"[\w.:-]+")
_FIRST_WORDS = 5
_HELP = re.compile(r"\s+-{1,2}[A-Za-z][\w-]*[ ,=]")
_BY_THE_SYSTEM = re.compile(
    r"NCCL WARN|NVRM|slurmstepd: |srun: error|oom[-_]kill|Out of memory: Kill|\[[EF]\d{3,4} "
    r"|PBS: job killed|\bTERM_[A-Z]+LIMIT|^\S*: line \d+: .{0,40}Killed"
    r"|^(?!\S*(?:Error|Exception)\b)[\w./-]{1,80}: (?:error|cannot|failed|write) .{0,300}: [A-Z]"
)
_ATTEMPT = re.compile(
    r"^(?:\[W(?:\d{3,4}\b|\s)|W\d{4} |INFO\b|WARNING\b|\S{0,40}\[?(?:INFO|WARNING)\]|Waiting in store)"
)


def says_done(text: str) -> bool:
    """Whether it begins with the words that something is done."""
    return any(_DONE.search(word[0]) for word in islice(_WORD.finditer(text), _FIRST_WORDS))


def is_of_an_attempt(text: str) -> bool:
    """Whether it is a warning or information of torch's, which tries again what did not work."""
    return _ATTEMPT.search(text) is not None


def is_help(text: str) -> bool:
    """Whether it is an option in the text of ``--help``, which speaks of errors too."""
    return _HELP.match(text) is not None


def is_of_the_system(text: str) -> bool:
    """Whether a library, a tool or the system wrote it of an error, as no training does that got over one."""
    return _BY_THE_SYSTEM.search(text) is not None

"""What reports carry of a patch can be applied: SARIF's fixes give the file that the diff gives."""

import json

import pytest

from ddpdoctor.fix.edits import changed_lines
from ddpdoctor.model import Change, Finding, Kind, Level, Patch, Report, Where
from ddpdoctor.report import sarif

BEFORE = "import torch\n\nfor epoch in range(3):\n    step()\n    save()\nend()\n"


def replacements(after):
    """The replacements of a file in a SARIF report, whose finding has this patch."""
    changes = tuple(Change("train.py", *change) for change in changed_lines(BEFORE, after))
    patch = Patch("title", "the diff", True, "DD999 is gone, nothing new", changes)
    finding = Finding(
        "DD999", Level.FAIL, "a", "b", "c", where=Where("train.py", 4), about=Kind.LINE.of("x"), patch=patch
    )
    log = json.loads(sarif.render(Report("0.2.0", ("check",), 1, 0.0, findings=(finding,))))
    (fix,) = log["runs"][0]["results"][0]["fixes"]
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "train.py"}
    return change["replacements"]


def offset(text, line, column):
    return sum(len(before) for before in text.splitlines(keepends=True)[: line - 1]) + column - 1


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("    step()", "    sampler.set_epoch(epoch)\n    step()"),
        BEFORE.replace("    save()\n", "    if rank == 0:\n        save()\n    barrier()\n"),
        BEFORE.replace("import torch\n", "import os\nimport torch\n") + "destroy()\n",
        BEFORE.replace("end()\n", ""),
    ],
)
def test_the_fixes_of_sarif_give_the_patched_file(after):
    text = BEFORE
    for replacement in reversed(replacements(after)):
        region = replacement["deletedRegion"]
        begin = offset(text, region["startLine"], region["startColumn"])
        end = offset(text, region["endLine"], region["endColumn"])
        text = text[:begin] + replacement["insertedContent"]["text"] + text[end:]
    assert text == after

"""The comparison of a report with what was read by eye; the manifests themselves."""

import re

import pytest

from tests.field.comparison import compare, totals
from tests.field.data import MAKERS, make
from tests.field.manifest import batches, script_of

TABLE = {
    "name": "a",
    "repository": "o/n",
    "commit": "0" * 40,
    "path": "src/train.py",
    "style": "",
    "launch": "torchrun x",
}


def script(**more):
    return script_of({**TABLE, **more})


def finding(code="DD103", line=7, file="train.py", level="warn"):
    return {"code": code, "level": level, "where": {"file": file, "line": line, "function": None}}


def report(*findings):
    return {"exit_status": int(bool(findings)), "findings": list(findings)}


DEFECT = {"codes": ["DD103"], "lines": [7], "what": "no set_epoch"}


def test_a_finding_at_a_noted_line_is_true():
    assert compare(script(defects=[dict(DEFECT)]), report(finding())).true == ("DD103 train.py:7",)


@pytest.mark.parametrize("place", [{"line": 8}, {"file": "other.py"}])
def test_one_at_another_line_is_told_apart(place):
    contact = compare(script(defects=[dict(DEFECT)]), report(finding(**place)))
    assert (contact.true, len(contact.other_line), contact.missed) == ((), 1, ())


def test_one_that_nobody_noted_is_false():
    contact = compare(script(), report(finding("DD304")))
    assert contact.false == ("DD304 train.py:7",)
    assert contact.failed


def test_one_that_tells_a_wrong_story_is_misleading():
    assert compare(script(misleading=[dict(DEFECT)]), report(finding())).misleading == ("DD103 train.py:7",)


def test_a_defect_that_nothing_names_is_missed():
    contact = compare(script(defects=[dict(DEFECT)]), report())
    assert [defect.what for defect in contact.missed] == ["no set_epoch"]
    assert not contact.silent


def test_a_finding_at_one_defect_names_no_other_of_its_code():
    other = {**DEFECT, "lines": [70], "what": "nor here"}
    contact = compare(script(defects=[dict(DEFECT), other]), report(finding()))
    assert [defect.what for defect in contact.missed] == ["nor here"]


def test_information_names_a_defect_and_is_no_alarm():
    contact = compare(script(defects=[dict(DEFECT)]), report(finding(level="info")))
    assert (contact.missed, contact.true, contact.false) == ((), (), ())


def test_totals_count_what_was_read_by_eye():
    noticed_later = {**DEFECT, "by_eye": False}
    contacts = [compare(script(), report()), compare(script(defects=[noticed_later]), report(finding()))]
    numbers = totals(contacts)
    assert (numbers["silent and rightly so"], numbers["findings true"], numbers["defects read by eye"]) == (
        1,
        1,
        0,
    )


def test_the_manifests_are_complete():
    scripts = [script for batch in batches() for script in batch.scripts]
    assert len({script.name for script in scripts}) == len(scripts)
    for script in scripts:
        assert re.fullmatch("[0-9a-f]{40}", script.commit), script.name
        assert {recipe["make"] for recipe in script.data} <= set(MAKERS), script.name
        codes = {code for defect in (*script.defects, *script.misleading) for code in defect.codes}
        assert all(re.fullmatch(r"DD\d{3}", code) for code in codes), script.name


def test_data_are_the_same_in_every_run(tmp_path):
    recipe = {"make": "text", "at": "corpus/train.txt", "lines": 3}
    for run in ("first", "second"):
        make(tmp_path / run, recipe)
    first, second = ((tmp_path / run / "corpus" / "train.txt").read_text() for run in ("first", "second"))
    assert first == second
    assert len(first.splitlines()) == 3

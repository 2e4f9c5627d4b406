import json
from pathlib import Path

import jsonschema
import pytest

from ddpdoctor import report as reports
from ddpdoctor.model import Family, Level, Outcome
from ddpdoctor.report import Format, render
from tests.report.sample import EVERYTHING, HEALTHY, NOTHING

SCHEMA = json.loads((Path(reports.__file__).parent / "schema.json").read_text())
NAMES = {
    "": "schema tool version command exit_status seconds checks findings run",
    "checks": "code name family outcome reason seconds",
    "findings": "code level headline why fix ranks where evidence confidence more",
}


@pytest.mark.parametrize("report", [EVERYTHING, HEALTHY, NOTHING])
def test_the_published_schema_describes_the_report(report):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(render(report, Format.JSON)), SCHEMA)


def test_the_schema_refuses_what_is_no_report():
    values = json.loads(render(EVERYTHING, Format.JSON))
    values["findings"][0]["level"] = "catastrophe"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_the_names_that_other_programs_rely_on_are_there():
    values = json.loads(render(EVERYTHING, Format.JSON))
    for place, names in NAMES.items():
        assert set(names.split()) <= set(values[place][0] if place else values)
    assert set(values["findings"][0]["where"]) == {"file", "line", "function"}
    assert set(values["findings"][0]["evidence"][0]) == {"ranks", "text"}


def test_the_schema_knows_every_value_of_the_vocabulary():
    definitions = SCHEMA["$defs"]
    assert definitions["check"]["properties"]["family"]["enum"] == [family.value for family in Family]
    assert set(definitions["check"]["properties"]["outcome"]["enum"]) == {
        outcome.value for outcome in Outcome
    }
    assert definitions["finding"]["properties"]["level"]["enum"] == [level.value for level in Level]

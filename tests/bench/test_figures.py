import pytest

from ddpdoctor.bench.figures import sections
from ddpdoctor.bench.report import head
from ddpdoctor.figures import Lines, Strips, Tone
from ddpdoctor.report.html import sections_page
from tests.bench.test_verdict import results
from tests.bench.timed import rank
from tests.report.test_html import Parser


def test_the_parts_of_a_step_fill_it():
    measured = results(rank(exposed=0.020), rank(exposed=0.020))
    scaling, *_ = sections(measured)
    efficiency, steps = scaling.figures
    assert isinstance(steps, Strips)
    assert [row.spans[-1].end for row in steps.rows] == pytest.approx(
        [split.total for split in measured.splits]
    )
    averaged = [span for span in steps.rows[1].spans if span.tone is Tone.COLLECTIVE]
    assert averaged[0].about == "averaging gradients: 20.0 ms"
    assert isinstance(efficiency, Lines)
    assert efficiency.series[0].points[1] == (2.0, pytest.approx(0.5))
    assert scaling.text.startswith("2 ranks reach 50 %")


def test_one_rank_alone_has_no_communication():
    assert [section.title for section in sections(results())] == ["Scaling"]


def test_a_benchmark_is_a_page():
    measured = results(rank(), rank())
    page = Parser(sections_page("ddpdoctor bench", head(measured), sections(measured)))
    assert "torch 2.13.0" in page.text
    assert len(page.all("figure")) == sum(len(section.figures) for section in sections(measured))

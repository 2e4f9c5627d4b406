import math

from ddpdoctor.figures import Lines, Table
from ddpdoctor.report.html import sections_page
from ddpdoctor.runs.figures import sections
from ddpdoctor.runs.run_reader import Description, Evaluation, Run, Step
from ddpdoctor.runs.summary import summarize_all
from tests.report.test_html import Parser


def run(tmp_path, name, losses):
    steps = tuple(Step(number, loss=loss) for number, loss in enumerate(losses))
    return Run(
        tmp_path / name, name, Description(world_size=2), steps=steps, evaluations=(Evaluation(2, 1.5),)
    )


def test_curves_have_a_line_for_each_run_and_no_figure_without_values(tmp_path):
    runs = [run(tmp_path, "a", [3.0, 2.0, math.nan]), run(tmp_path, "b\x1b[31m", [3.0, 1.0])]
    table, curves = sections(runs, summarize_all(runs))
    assert [figure.title for figure in curves.figures] == ["Loss", "Loss on held-out data"]
    loss = curves.figures[0]
    assert isinstance(loss, Lines)
    assert [(series.name, len(series.points)) for series in loss.series] == [("a", 2), (r"b\x1b[31m", 2)]
    assert isinstance(table.figures[0], Table)
    assert [row[0] for row in table.figures[0].rows] == ["a", r"b\x1b[31m"]


def test_runs_are_a_page(tmp_path):
    runs = [run(tmp_path, "<b>a</b>", [3.0, 2.0])]
    page = Parser(sections_page("ddpdoctor runs", runs[0].name, sections(runs, summarize_all(runs))))
    assert page.all("b") == []
    assert "<b>a</b>" in page.text

import math
from xml.etree import ElementTree

import pytest

from ddpdoctor.picture import COLOURS, INK, draw
from ddpdoctor.runs.figures import MOST_POINTS, curves, scaling, thinned
from ddpdoctor.runs.run_reader import read_run
from ddpdoctor.runs.summary import summarize_all
from tests.support.run_folders import make_run, step_line

HOSTILE_NAME = "$\\frac{$ <b>&_\x1b[31m"


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib")


@pytest.fixture
def runs(tmp_path):
    lines = [step_line(21, loss=math.nan), {"kind": "evaluation", "step": 20, "evaluation_loss": 0.3}]
    return [
        read_run(make_run(tmp_path, "one", ranks=1)),
        read_run(make_run(tmp_path, HOSTILE_NAME, speed=170.0, lines=lines)),
    ]


def test_an_svg_names_every_run_and_every_panel(matplotlib, runs, tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    draw(curves(runs), tmp_path / "runs.svg")
    texts = ["".join(one.itertext()) for one in ElementTree.parse(tmp_path / "runs.svg").iter()]
    for expected in ("one", "Learning rate", "Gradient norm", "Throughput: samples/s, all ranks"):
        assert expected in texts
    assert any("<b>&_\\x1b[31m" in text for text in texts)


def test_a_png_is_transparent_and_its_ink_is_seen_on_both_pages(matplotlib, runs, tmp_path):
    draw(curves(runs), tmp_path / "runs.png")
    pixels = matplotlib.image.imread(tmp_path / "runs.png")
    assert pixels[0, 0, 3] == 0
    for colour in (INK, *COLOURS):
        assert contrast(colour, 1.0) > 2.5
        assert contrast(colour, 0.01) > 2.5


def contrast(colour: str, page: float) -> float:
    """As WCAG defines it, of a colour on a page of this luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    own = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (max(own, page) + 0.05) / (min(own, page) + 0.05)


def test_scaling_is_drawn(matplotlib, runs, tmp_path):
    draw(scaling(summarize_all(runs)), tmp_path / "scaling.svg")
    assert (tmp_path / "scaling.svg").stat().st_size > 5000


def test_without_a_run_of_one_process_the_throughput_is_drawn_alone(matplotlib, runs, tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    draw(scaling(summarize_all(runs[1:])), tmp_path / "scaling.svg")
    text = (tmp_path / "scaling.svg").read_text()
    assert "samples/s, all ranks" in text
    assert "efficiency" not in text


def test_of_nothing_there_is_no_chart(tmp_path):
    empty = [read_run(make_run(tmp_path, "empty", steps=0))]
    assert curves(empty) == ()
    assert scaling(summarize_all(empty)) == ()


def test_charts_of_runs_have_one_axis_of_steps(runs):
    ranges = {chart.x_range for chart in curves(runs)}
    assert len(ranges) == 1


def test_a_long_curve_keeps_its_ends_and_its_mean():
    points = [(step, float(step)) for step in range(25_000)]
    short = thinned(points)
    assert len(short) <= MOST_POINTS
    assert short[0][0] < 25
    assert short[-1][0] > 24_950
    assert sum(value for _, value in short) / len(short) == pytest.approx(12_499.5)

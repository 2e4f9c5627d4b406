import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import explained, log

NAMED = [
    (
        "|    0   N/A  N/A     100      C   python     5103MiB |\n|    0   N/A  N/A     101      C   python    "
        " 741MiB |\n|    0   N/A  N/A     102      C   python     741MiB |\n|    1   N/A  N/A     101      C   "
        "python     5103MiB |\n|    2   N/A  N/A     102      C   python     5103MiB |\n",
        "2 processes that work on other GPUs hold memory on GPU 0 too",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD803", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD803"


@pytest.mark.parametrize(
    "text",
    [
        "|    0   N/A  N/A     100      C   python     5103MiB |\n|    1   N/A  N/A     101      C   python    "
        " 5103MiB |\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD803", Source.LOG, log(text))

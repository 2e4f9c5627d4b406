"""Where a function draws what is another on each rank."""

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.random_draws import first_draw

SOURCE = """
class Data:
    @timed
    def __init__(self, size):
        self.size = torch.tensor(size)
        {line}
        self.again = random.random()

    def __getitem__(self, index):
        return torch.rand(3)

    def fixed(self):
        self.names = sorted(os.listdir(".")), torch.randn(3, generator=self.generator)
        self.sample(3)
"""


@pytest.fixture
def draw_of(tmp_path):
    def look(line, begins=3):
        file = tmp_path / f"data_{hash(line)}.py"
        file.write_text(SOURCE.replace("{line}", line))
        found = first_draw(Where(str(file), begins))
        return found and found.line

    return look


@pytest.mark.parametrize(
    "line",
    [
        "self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]",
        "numpy.random.shuffle(self.data)",
        "self.files = list(pathlib.Path(folder).iterdir())",
        "self.files = glob.glob(folder)",
    ],
)
def test_the_first_line_that_draws_or_lists(draw_of, line):
    assert draw_of(line) == 6


def test_what_is_the_same_on_every_rank(draw_of):
    assert draw_of("self.data = torch.arange(size)") == 7
    assert draw_of("pass", begins=12) is None
    assert draw_of("pass", begins=1) is None
    assert first_draw(None) is None

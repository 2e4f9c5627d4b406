"""The line that makes a dataset another one in each process: random numbers, a set's order, what a folder lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from ddpdoctor.model import Where
from ddpdoctor.trace.expression_sources import Match, Place, Search, dataset_argument, files_of
from ddpdoctor.trace.hand_cuts import Cuts, mentions_rank
from ddpdoctor.trace.syntax import called_name

_DRAWS = re.compile(
    r"(?:random|np\.random|numpy\.random)\.(?!seed|Random|default_rng|RandomState|get|set)[a-z_]+"
    r"|torch\.(?:rand|randn|randint|randperm|normal|bernoulli|multinomial)|(?:random_split|train_test_split|shuffle)"
)
_PUTS_IN_ORDER = re.compile(
    r"(?:random|np\.random|numpy\.random)\.(?:shuffle|permutation|permuted|sample|choice)"
    r"|torch\.randperm|train_test_split|shuffle"
)
_STREAMS = {
    "python": re.compile(r"random\.[a-z]+|shuffle"),
    "numpy": re.compile(r"(?:np|numpy)\.random\.[a-z]+|train_test_split"),
    "torch": re.compile(r"torch\.[a-z]+"),
}
"""Functions that draw from the global random streams."""
_LISTS = re.compile(r"(?:os\.(?:listdir|scandir|walk)|i?glob|.*\.(?:glob|iglob|rglob|iterdir))")
_SEEDED = ("generator", "random_state")
"""Arguments by which a draw is the same in every process."""
_SEEDS = re.compile(r"((?:np\.|numpy\.)?random|torch)\.(?:manual_)?seed\(\d+\)")
"""A generator that draws the same numbers in every process."""
_GENERATORS = ("Random", "default_rng", "RandomState")
_METHODS = ("shuffle", "permutation", "permuted", "sample", "choice")
"""Those of generators that put in an order."""


class Draw(IntEnum):
    """Why a line makes another dataset in each process; the likeliest first."""

    RANDOM = 1
    SET = 2
    FOLDER = 3


@dataclass(frozen=True)
class OrderDraw:
    """The line that puts samples in another order in each process."""

    where: Where
    kind: Draw
    stream: str | None
    """The global random stream that it draws from: ``torch``, ``numpy`` or ``python``."""


def dataset_draw(loader: Where | None, script: str) -> Where | None:
    """The line that draws, or lists in no order, what the dataset of a DataLoader holds; None where none is seen.

    Args:
        loader: the line that constructs it.
    """
    given = dataset_argument(loader)
    if given is None:
        return None
    dataset, place = given
    draw = _likeliest(_Draws(files_of(script, place.file), _DRAWS).matches(dataset, place))
    return draw.where if draw else None


def draw_before_cut(loader: Where | None, script: str) -> OrderDraw | None:
    """The line that makes an order another one in each process, out of which ranks cut the parts that their datasets
    are; None where none is seen.

    Args:
        loader: the line that constructs a DataLoader.
    """
    given = dataset_argument(loader)
    if given is None:
        return None
    dataset, place = given
    files = files_of(script, place.file)
    if any(_Exchanges(files).matches(dataset, place)):
        return None
    for cut in Cuts(files).matches(dataset, place):
        draws = _Draws(files, _PUTS_IN_ORDER).matches(Cuts.cut_up(cut.node), cut.place)
        draw = _likeliest(draw for draw in draws if not _is_behind(draw, cut))
        if draw is not None:
            return OrderDraw(draw.where, Draw(draw.kind), _stream(draw.node))
    return None


def _likeliest(draws: Iterable[Match]) -> Match | None:
    return min(draws, key=lambda draw: draw.kind, default=None)


def _stream(draw: ast.expr) -> str | None:
    name = ast.unparse(draw.func) if isinstance(draw, ast.Call) else ""
    streams = (stream for stream, functions in _STREAMS.items() if functions.fullmatch(name))
    return next(streams, None)


def _is_behind(draw: Match, cut: Match) -> bool:
    """Whether a rank draws from its part, which it has cut before."""
    return draw.place.scope is cut.place.scope and draw.node.lineno > cut.node.lineno


class _Exchanges(Search):
    """What gives ranks the order of another one."""

    def kind(self, node: ast.expr, place: Place) -> int:
        return int(isinstance(node, ast.Call) and called_name(node).startswith(("broadcast", "scatter")))

    def hides(self, node: ast.AST) -> bool:
        return False


class _Draws(Search):
    """What makes values, or their order, other ones in each process.

    Args:
        random: the functions that draw at random, as the script writes them.
    """

    def __init__(self, files: list[Place], random: re.Pattern[str]) -> None:
        super().__init__(files)
        self._random = random
        self._seeded = {
            match[1]
            for call in self.calls("seed", "manual_seed")
            if (match := _SEEDS.fullmatch(ast.unparse(call))) is not None
        }
        self._own = {
            ast.unparse(target)
            for file in files
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Assign) and _is_own_generator(node.value)
            for target in node.targets
        }
        """Generators that each process seeds by itself."""

    def kind(self, node: ast.expr, place: Place) -> int:
        if isinstance(node, ast.Set | ast.SetComp):
            return Draw.SET
        if not isinstance(node, ast.Call) or any(keyword.arg in _SEEDED for keyword in node.keywords):
            return 0
        name = ast.unparse(node.func)
        if self._random.fullmatch(name):
            return 0 if name.rpartition(".")[0] in self._seeded else Draw.RANDOM
        if self._is_of_own_generator(node.func):
            return Draw.RANDOM
        return Draw.SET if name == "set" else Draw.FOLDER if _LISTS.fullmatch(name) else 0

    def _is_of_own_generator(self, called: ast.expr) -> bool:
        """``generator.shuffle``, of one that each process seeds by itself."""
        if not isinstance(called, ast.Attribute) or called.attr not in _METHODS:
            return False
        return _is_own_generator(called.value) or ast.unparse(called.value) in self._own

    def hides(self, node: ast.AST) -> bool:
        """Whether the order of what is in there does not matter: it is sorted, counted, or asked for a member."""
        if isinstance(node, ast.Compare):
            return any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
        return isinstance(node, ast.Call) and called_name(node) in ("sorted", "len")


def _is_own_generator(made: ast.expr) -> bool:
    """``random.Random()`` without a seed, or with one by the rank."""
    if not isinstance(made, ast.Call) or called_name(made) not in _GENERATORS:
        return False
    return not (made.args or made.keywords) or mentions_rank(made)

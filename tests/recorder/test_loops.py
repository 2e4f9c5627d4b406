"""What drives an iterator is told apart, since only a for statement takes an early end as its own."""

import dis
import sys

import pytest

from ddpdoctor.recorder import loops


class Items:
    def __init__(self):
        self.left = 3
        self.drivers = set()

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        self.drivers.add(loops.driver(sys._getframe(1)))
        return self.left


def a_for(items):
    for _ in items:
        pass


def enumerated_in_epochs(items):
    for _ in range(2):
        for _, item in enumerate(items):
            if item > 5:
                continue


def zipped(items):
    for _ in zip(range(9), items, strict=False):
        pass


def a_comprehension(items):
    [item for item in items]


def like_tqdm(items):
    def shown(iterable):
        yield from range(0)
        for item in iterable:  # noqa: UP028 - it is this loop that is tested
            yield item

    for _ in shown(items):
        pass


def by_next(items):
    for _ in range(2):
        next(items)


def through_an_iterator_around_it(items):
    class Around:
        def __iter__(self):
            return self

        def __next__(self):
            return next(items)

    for _ in Around():
        pass


def as_a_list(items):
    list(items)


def cycled(items):
    def cycle():
        while True:
            for item in items:  # noqa: UP028 - it is this loop that is tested
                yield item

    batches = cycle()
    for _ in range(3):
        next(batches)


def cycled_by_yield_from(items):
    def cycle():
        while True:
            yield from items

    batches = cycle()
    for _ in range(3):
        next(batches)


def through(items):
    for item in items:  # noqa: UP028 - it is this loop that is tested
        yield item


def generator_by_next(items):
    batches = through(through(items))
    next(batches)
    batches.__next__()


def generator_in_a_for(items):
    for _ in enumerate(item for item in through(items)):
        pass


def generator_summed(items):
    sum(item for item in items)


def generator_by_yield_from(items):
    def batches():
        yield from items

    next(batches())


def framework_by_next(items):
    framework = {"__name__": "accelerate.data_loader"}
    exec("def batches(items):\n    for item in items:\n        yield item", framework)
    next(framework["batches"](items))


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (a_for, loops.FOR),
        (enumerated_in_epochs, loops.FOR),
        (zipped, loops.FOR),
        (a_comprehension, loops.FOR),
        (like_tqdm, loops.FOR),
        (by_next, loops.HAND),
        (through_an_iterator_around_it, loops.FOR),
        (as_a_list, loops.HAND),
        (cycled, loops.CYCLE),
        (cycled_by_yield_from, loops.CYCLE),
        (generator_by_next, loops.HAND),
        (generator_in_a_for, loops.FOR),
        (generator_summed, loops.HAND),
        (generator_by_yield_from, loops.HAND),
        (framework_by_next, loops.HAND),
    ],
)
def test_driver(loop, expected):
    items = Items()
    loop(items)
    assert items.drivers == {expected}


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("pass", False),
        ("if x: break", True),
        ("if x: return", True),
        ("if x: raise ValueError", True),
        ("try:\n            f(x)\n        except KeyError:\n            continue", False),
        ("try:\n            f(x)\n        except KeyError:\n            break", True),
        ("try:\n            f(x)\n        except KeyError:\n            raise", True),
        ("try:\n            f(x)\n        finally:\n            g()", False),
        ("try:\n            f(x)\n        finally:\n            if g(): return", True),
        ("with f(x): g()", False),
        ("with f(x):\n            if g(): break", True),
        ("for y in x:\n            if y: break", False),
        ("for y in x:\n            if y: return", True),
        ("for y in x:\n            if y: break\n        else:\n            break", True),
        ("while x:\n            if f(x): break", False),
        ("assert x > 0, 'none'", False),
        ("if x: continue\n        f(x)", False),
        ("f([y for y in x if y])", False),
        ("def f():\n            return 1", False),
        ("yield x", False),
    ],
)
@pytest.mark.parametrize("around", ["", "try", "with", "while"])
def test_a_loop_that_may_be_left(body: str, left: bool, around: str) -> None:
    head = {
        "": "    if items:\n",
        "try": "    try:\n",
        "with": "    with f():\n",
        "while": "    while True:\n",
    }[around]
    tail = "    except KeyboardInterrupt:\n        return\n" if around == "try" else ""
    lines = ["    for x in items:", *f"        {body}".split("\n")]
    text = "def loop(items, f, g):\n" + head + "".join(f"    {line}\n" for line in lines) + tail
    names: dict = {}
    exec(text, names)
    code = names["loop"].__code__
    at = next(it.offset for it in dis.get_instructions(code) if it.opname == "FOR_ITER")
    assert loops.is_left(code, at) is left

import errno

import pytest

from ddpdoctor.group.group_run import PortWatch
from ddpdoctor.launch import Launch


class Binds:
    """A host on which each look at a port finds the next of these errno values."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def try_bind(self, address: str, port: int) -> int:
        return self.errors.pop(0)

    def listeners(self, port: int) -> list[object]:
        return []


@pytest.mark.parametrize(
    ("errors", "goes_on", "during"),
    [
        ([errno.EADDRINUSE], [], errno.EADDRINUSE),
        ([0, 0], [True, True], 0),
        ([0, 0], [True, False], None),  # the group broke, and let go of the port
        ([0, 0, 0], [False, True, True], 0),
        ([0, errno.EADDRINUSE], [True], errno.EADDRINUSE),
    ],
)
def test_a_port_that_is_not_held_counts_of_a_group_that_goes_on(errors, goes_on, during):
    watch, answers = PortWatch(Binds(*errors), Launch(), ""), iter(goes_on)
    for _ in errors:
        watch.look(lambda: next(answers))
    assert watch.use.during == during


def test_a_port_of_another_node_is_not_looked_at():
    watch = PortWatch(Binds(), Launch(nnodes=2, node_rank=1), "")
    watch.look(lambda: True)
    assert watch.look_after() == watch.use

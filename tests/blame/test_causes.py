"""The closed set of causes."""

import pytest

from ddpdoctor import registry
from ddpdoctor.blame import causes


def _kinds(kind: type) -> list[type]:
    return [kind, *(below for one in kind.__subclasses__() for below in _kinds(one))]


@pytest.mark.parametrize("kind", _kinds(causes.Cause)[1:], ids=lambda kind: kind.__name__)
def test_one_check_tells_of_each(kind: type) -> None:
    tellers = [check.code for check in registry.all_checks() if kind in check.causes]
    assert tellers == [registry.by_cause(kind).code]

"""A rank of the live group, before it joins."""

import threading
from pathlib import Path

import pytest

from ddpdoctor.group import rank_files
from ddpdoctor.launch import Launch

pytestmark = pytest.mark.slow  # a rank imports torch


def test_a_rank_does_not_join_before_all_are_forked(tmp_path: Path) -> None:
    """Those of this host, whose files have the numbers of the whole job."""
    from ddpdoctor.group.worker import _wait_for_forks

    launch = Launch(nproc=2, nnodes=2, node_rank=1)
    waits = threading.Thread(target=_wait_for_forks, args=(launch, tmp_path), daemon=True)
    rank_files.rank_file(tmp_path, 2).touch()
    waits.start()
    waits.join(0.2)
    assert waits.is_alive()
    rank_files.rank_file(tmp_path, 3).touch()
    waits.join(20.0)
    assert not waits.is_alive()

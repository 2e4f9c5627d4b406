"""Whether replicas stayed together."""

import ast

from ddpdoctor.trace.sync import weights_are_made_equal
from tests.support.recordings import recording, replace


def test_the_files_of_a_script_are_searched_for_an_average_once_for_all_ranks(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("model = build()\nmodel.register_comm_hook(state, post_localSGD_hook)\n")
    searched = []
    unparse = ast.unparse
    monkeypatch.setattr(ast, "unparse", lambda node: searched.append(node) or unparse(node))
    right = {rank: recording(rank, 4) for rank in range(4)}
    group = {
        rank: replace(it, script=str(script), wrappers=(replace(it.wrappers[0], hook="post_localSGD_hook"),))
        for rank, it in right.items()
    }
    assert not weights_are_made_equal(group)
    assert searched
    assert len(searched) == len(set(map(id, searched)))

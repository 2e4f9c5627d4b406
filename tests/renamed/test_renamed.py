"""A verdict does not depend on how a script spells its own names; ``python -m tests.renamed`` runs every script."""

from pathlib import Path

import pytest

from tests.renamed.verdicts import NAMES, SCRIPTS, difference

pytestmark = pytest.mark.slow
RULES = (
    *("dd104_own_sharding_unseeded", "dd106_parts_cut_by_hand", "dd111_unseeded_dataset"),
    *("dd206_local_sgd_never_averages", "dd208_plateau", "dd226_updated_on_rank_0"),
    *("dd227_wrapped_on_gpus_only", "dd308_patience_of_each_rank", "dd310_never_destroyed"),
    *("dd502_best_of_rank_0", "dd502_evaluates_slices", "dd502_loss_beside_accuracy"),
    *("metrics_of_an_object", "parts_of_one_order", "post_local_sgd", "loss_reduced_for_log"),
    *("mesh_of_data_and_tensors", "rank_0_evaluates_bare_model", "stops_early_by_a_reduced_loss"),
    "one_batch_overfitted",
)
"""Scripts whose verdict needs to know what a value is: a metric, the number of a rank, a decision."""


@pytest.mark.parametrize("name", RULES)
def test_names_decide_nothing(name: str, tmp_path: Path) -> None:
    (script,) = (it for it in SCRIPTS if it.stem == name)
    kind = sorted(NAMES)[RULES.index(name) % 2]
    assert difference(script, NAMES[kind], tmp_path) == ""

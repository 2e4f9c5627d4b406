"""A rehearsal of one rank without the GPU finds what a run of one rank on the GPU does."""

import pytest

from tests.gpu.support import HERE, checked, on_gpu
from tests.support.command import ROOT
from tests.support.forked import needs_gpus, starts_ranks_itself

pytestmark = on_gpu

FOLDERS = (HERE / "right", ROOT / "tests" / "sick", ROOT / "tests" / "healthy", ROOT / "tests" / "recorder")
LEFT_OUT = {"dd806_batch_too_large", "dd809_label_out_of_range", "dd809_illegal_address", "nccl_table"}
"""What only a GPU can do, and a script that sends to a second rank."""
SCRIPTS = sorted(
    script
    for folder in FOLDERS
    for script in folder.rglob("*.py")
    if not script.stem.startswith(("test_", "_"))
    and needs_gpus(script)
    and not starts_ranks_itself(script)
    and script.stem not in LEFT_OUT
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_rehearsal_finds_the_same(script, tmp_path):
    findings = []
    for options in ((), ("--rehearse",)):
        work = tmp_path / "-".join(("work", *options))
        work.mkdir()
        env = {"CUDA_VISIBLE_DEVICES": ""} if options else {}
        done = checked(script, work, *options, env=env)
        findings.append({(one["code"], str(one["where"])) for one in done.report["findings"]})
    assert findings[0] == findings[1]

"""What a name suggests and the program does not: near misses on both sides of what patches used to guess."""

import pytest

from ddpdoctor.fix import CannotPatch
from tests.fix.cases import patched

GUARDED = """\
{head}
dist.init_process_group("gloo")
if {condition}:
    torch.save(net.state_dict(), "last.pt")  # here
"""
ON_RANK_0 = "if dist.get_rank() == 0:\n    torch.save"


@pytest.mark.parametrize(
    ("head", "condition"),
    [
        ("lora_rank = 0", "lora_rank == 0"),
        ("is_main_part = True", "is_main_part"),
        ("def is_main_process():\n    return True", "is_main_process()"),
    ],
)
def test_no_name_makes_a_condition_one_on_the_rank(head, condition, tmp_path):
    after = patched("write_on_rank_0", GUARDED.format(head=head, condition=condition), tmp_path)
    assert f"if {condition}:\n    if dist.get_rank() == 0:\n        torch.save" in after
    assert '        torch.save(net.state_dict(), "last.pt")  # here\n    dist.barrier()\n' in after


@pytest.mark.parametrize(
    "head",
    [
        "import os\nnumber = int(os.environ['LOCAL_RANK'])",
        "from torch import distributed\nnumber = distributed.get_node_local_rank()",
    ],
)
def test_what_a_condition_compares_makes_it_one(head, tmp_path):
    after = patched("write_on_rank_0", GUARDED.format(head=head, condition="number == 0"), tmp_path)
    assert ON_RANK_0 in after
    assert "barrier" not in after


STOP = """\
from torch.utils.data import DataLoader
dist.init_process_group("gloo")
rank = dist.get_rank()
for epoch in range(9):
    for x in DataLoader(data):
        own = net(x).mean()
    {reduce}
    if own < 1:
        torch.save(net.state_dict(), "best.pt")  # here
"""


@pytest.mark.parametrize(
    ("reduce", "adds_barrier"), [("dist.all_reduce(own)", True), ("own = own / 2", False)]
)
def test_a_number_that_ranks_share_brings_all_of_them(reduce, adds_barrier, tmp_path):
    after = patched("write_on_rank_0", STOP.format(reduce=reduce), tmp_path)
    assert ("dist.barrier()" in after) is adds_barrier
    assert "if rank == 0:" in after


PRINTED = """\
from torch.utils.data import DataLoader
dist.init_process_group("gloo")
loss, accuracy = 3, 0.5
for x in DataLoader(data):
    n = net(x).mean()
if dist.get_rank() == 0:
    print(loss, {number})  # here
"""


def test_what_each_rank_computed_is_reduced_and_nothing_that_sounds_like_it(tmp_path):
    after = patched("reduced_metric", PRINTED.format(number="n"), tmp_path)
    assert "dist.all_reduce(n_mean)" in after
    assert after.count("all_reduce") == 1
    with pytest.raises(CannotPatch, match="the metric is not a variable"):
        patched("reduced_metric", PRINTED.format(number="accuracy"), tmp_path)


SEEDED = """\
from torch.utils.data import DistributedSampler
dist.init_process_group("gloo")
rank = 3
place = dist.get_rank()
sampler = DistributedSampler(data, seed={seed})  # here
"""


def test_a_seed_loses_the_rank_and_not_a_number_of_that_name(tmp_path):
    after = patched("equal_seed", SEEDED.format(seed="7 + rank + place"), tmp_path)
    assert "seed=7 + rank)" in after
    with pytest.raises(CannotPatch, match="no random numbers"):
        patched("equal_seed", SEEDED.format(seed="7 + rank"), tmp_path)

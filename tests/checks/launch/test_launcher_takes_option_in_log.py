import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NAMED = [
    (
        "torchrun: error: ambiguous option: --log could match --log-dir, --log_dir, --log-line-prefix-template\n",
        "torchrun refused '--log'",
    ),
    ("torchrun: error: unrecognized arguments: --nproc 2\n", "torchrun refused '--nproc'"),
    (
        "torchrun: error: the following arguments are required: training_script, training_script_args\n",
        "torchrun found no script to start",
    ),
    (
        "torchrun: error: argument --nproc-per-node/--nproc_per_node: expected one argument\n",
        "torchrun refused '--nproc-per-node/--nproc_per_node'",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD008", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD008"


@pytest.mark.parametrize(
    "text",
    [
        "train.py: error: ambiguous option: --l could match --lr, --log\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD008", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD008", Source.LOG, log(text + 8 * TRAINING))

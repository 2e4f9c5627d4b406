import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(0, "RuntimeError", "CUDA error: device-side assert triggered\nCUDA kernel errors might"),
        "a GPU kernel failed in the code that its traceback shows: device-side assert triggered",
    ),
    (
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
        "thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        + raised(0, "RuntimeError", "CUDA error: device-side assert triggered"),
        "a GPU kernel asserted 't >= 0 && t < n_classes'",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD809", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD809"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD809", Source.LOG, log(text + 8 * TRAINING))

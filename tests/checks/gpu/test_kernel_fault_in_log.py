from tests.support.logs import explained, lets_survive, names, raised, summary

NAMED = [
    (
        raised(0, "RuntimeError", "CUDA error: device-side assert triggered\nCUDA kernel errors might"),
        "a GPU kernel of rank 0 failed in the code that its traceback shows: device-side assert triggered",
    ),
    (
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
        "thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
        + raised(0, "RuntimeError", "CUDA error: device-side assert triggered"),
        "a GPU kernel of rank 0 asserted 't >= 0 && t < n_classes'",
    ),
    (
        "Memory access fault by GPU node-3 (Agent handle: 0x55) on address 0x7f12. Reason: Page not present.\n"
        + summary(1, -6),
        "a GPU kernel failed: Memory access fault by GPU",
    ),
]

test_it_is_named = names("DD809", NAMED)

test_what_training_survived_is_not = lets_survive("DD809", NAMED[:2])


def test_the_rank_is_the_one_that_reports_the_assertion():
    assert explained(NAMED[1][0])[0].ranks == (0,)


def test_what_helps_is_of_the_maker_of_the_gpu():
    nvidia, *_, amd = (explained(text)[0].fix for text, _ in NAMED)
    assert "compute-sanitizer" in nvidia
    assert "AMD_SERIALIZE_KERNEL=3" in amd

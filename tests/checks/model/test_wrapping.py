"""DD221, DD223 and DD224: what DDP's constructor refuses, and what comes too late after it."""

import pytest

from ddpdoctor import registry
from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import Conversion
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import LINE_OF_FORWARD, raising

NOTHING = (
    "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
)
IDS = (
    "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU "
    "modules or CPU modules, but got device_ids [{rank}], output_device None, and module parameters ..."
)
ON_CPU = "SyncBatchNorm layers only work with GPU modules"


def failing(kind, message):
    """The constructor of line 30 raised it."""

    def change(rank, one):
        failed = f"{kind}: {message.format(rank=rank)}"
        return replace(one, wrappers=(replace(one.wrappers[0], failed=failed),))

    return raising(message, kind, line=99, change=change)


def converting(*, wrapped, layers=3):
    made = Conversion(1.0, where(33), layers, wrapped)
    return lambda rank, one: replace(one, record=Record.made(made))


def test_a_frozen_module_is_wrapped():
    finding = only_finding("DD223", Source.RUN, failing("RuntimeError", NOTHING))
    assert finding.headline == (
        "Linear has nothing to train, and is wrapped in DistributedDataParallel on ranks 0-1: "
        "all 2 parameters are frozen"
    )
    assert finding.where == where(30)


@pytest.mark.parametrize(
    ("kind", "message", "clause"),
    [
        ("ValueError", IDS, "device_ids is given, and the module's parameters are on another device"),
        (
            "ValueError",
            "device_ids can only be None or contain a single element.",
            "device_ids names several devices",
        ),
        (
            "ValueError",
            "DistributedDataParallel's input module must be on the same type of devices, but ...",
            "the module is partly on the CPU and partly on a GPU",
        ),
        ("TypeError", "object of type 'int' has no len()", "device_ids is a number, not a list"),
    ],
)
def test_devices_that_do_not_go_together(kind, message, clause):
    finding = only_finding("DD224", Source.RUN, failing(kind, message))
    assert finding.headline == f"DistributedDataParallel's constructor failed on ranks 0-1: {clause}"
    assert finding.where == where(30)


def on_gpus(gpu, ids):
    """The module is on the GPU that ``gpu`` gives for a rank; the wrapper was given ``ids``."""

    def change(rank, one):
        wrapper = one.wrappers[0]
        there = tuple(replace(p, device=f"cuda:{gpu(rank)}") for p in wrapper.parameters)
        flags = {**wrapper.flags, "device_ids": ids(rank)}
        return replace(one, wrappers=(replace(wrapper, parameters=there, flags=flags),))

    return recorded(4, change)


def test_a_global_rank_as_a_gpu():
    finding = only_finding("DD224", Source.RUN, on_gpus(lambda rank: rank % 2, lambda rank: [rank]))
    assert finding.headline == "the module of rank 2 is on cuda:0, and device_ids names cuda:2"
    assert finding.ranks == (2, 3)
    assert finding.where == where(30)
    assert finding.evidence[1].text == "module on cuda:1, device_ids cuda:3"


@pytest.mark.parametrize(
    "ids",
    [lambda rank: [rank % 2], lambda rank: [f"cuda:{rank % 2}"], lambda rank: None, lambda rank: ["cuda"]],
)
def test_the_gpu_that_the_module_is_on(ids):
    passed("DD224", Source.RUN, on_gpus(lambda rank: rank % 2, ids))


def test_a_length_that_something_else_has_not_is_no_matter_of_the_wrap():
    message = "object of type 'int' has no len()"
    passed("DD224", Source.RUN, raising(message, "TypeError"))
    owner = registry.by_exception(f"TypeError: {message}")
    assert owner is None or owner.code != "DD224"


def test_a_conversion_after_the_wrap():
    finding = only_finding("DD221", Source.RUN, recorded(2, converting(wrapped=True)))
    assert finding.level is Level.WARN
    assert finding.headline == "BatchNorm is converted to SyncBatchNorm after the wrap on ranks 0-1"
    assert finding.where == where(33)


def test_a_conversion_after_the_wrap_that_ends_the_script():
    trace = raising(
        "SyncBatchNorm expected input tensor to be on GPU or XPU",
        "ValueError",
        change=converting(wrapped=True),
    )
    finding = only_finding("DD221", Source.RUN, trace)
    assert finding.level is Level.FAIL
    assert finding.where == where(33)


def test_sync_batch_norm_on_the_cpu():
    trace = raising("SyncBatchNorm expected input tensor to be on GPU or XPU", "ValueError")
    finding = only_finding("DD221", Source.RUN, trace)
    assert finding.headline == "SyncBatchNorm runs on the CPU on ranks 0-1"
    assert finding.where == where(LINE_OF_FORWARD)
    assert only_finding("DD221", Source.RUN, failing("ValueError", ON_CPU)).where == where(30)


def test_a_conversion_before_the_wrap_passes():
    assert passed("DD221", Source.RUN, recorded(2, converting(wrapped=False))).text


def test_what_is_not_there_is_skipped():
    bare = recorded(2, lambda rank, one: replace(one, wrappers=()))
    assert skipped("DD221", Source.RUN, bare).reason == "no layer was converted to SyncBatchNorm"
    for code in ("DD223", "DD224"):
        assert skipped(code, Source.RUN, bare).reason == "nothing was wrapped in DistributedDataParallel"
        assert passed(code, Source.RUN, recorded()).text

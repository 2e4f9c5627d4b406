"""DD801, DD802, DD803, DD806 and DD807 on recorded runs."""

from collections.abc import Callable
from typing import Any

import pytest

from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Level, Passed, Skipped, Source, Where
from ddpdoctor.recorder.events.process import Device, Raised
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, where

CROWD, ORDINAL, FIRST, MEMORY, FORKED = map(check, ("DD801", "DD802", "DD803", "DD806", "DD807"))


def device(index: int, how: str = "use", line: int = 25, visible: int = 2, **more: Any) -> Device:
    return Device(
        index, how, where(line), index < visible, str(index) if index < visible else None, visible, **more
    )


def rehearsed(devices: Callable[[int], tuple[Device, ...]], backend: str = "nccl", **more: Any) -> Trace:
    def change(rank: int, one: Recording) -> Recording:
        joined = replace(one.groups[0], backend=backend)
        return replace(one, devices=devices(rank), groups=(joined, *one.groups[1:]), **more)

    return recorded(change=change, rehearsal=True)


def test_ranks_with_gpus_of_their_own_pass() -> None:
    trace = rehearsed(lambda rank: (device(rank, "set", 22), device(rank)))
    for which in (CROWD, ORDINAL, FIRST):
        assert isinstance(ask(which.code, Source.RUN, trace), Passed), which.code


def test_ranks_that_each_see_another_gpu_as_the_first() -> None:
    trace = rehearsed(lambda rank: (Device(0, "use", where(25), True, str(rank), 1),))
    for which in (CROWD, ORDINAL, FIRST):
        assert isinstance(ask(which.code, Source.RUN, trace), Passed), which.code


def test_one_gpu_for_two_ranks() -> None:
    trace = rehearsed(lambda rank: (device(0, visible=1),))
    (finding,) = ask(CROWD.code, Source.RUN, trace)
    assert finding.headline == "ranks 0-1 share GPU 0: 2 ranks on 1 visible GPU"
    assert finding.where == where(25)
    assert isinstance(ask(FIRST.code, Source.RUN, trace), Passed)


def test_nobody_chose_a_gpu() -> None:
    trace = rehearsed(lambda rank: (device(0),))
    (finding,) = ask(FIRST.code, Source.RUN, trace)
    assert finding.headline == "ranks 0-1 work on cuda:0, and 2 GPUs are visible"
    assert (finding.level, finding.ranks) == (Level.FAIL, (0, 1))
    assert isinstance(ask(CROWD.code, Source.RUN, trace), Passed)


def test_the_line_is_that_of_a_rank_which_is_not_at_home_on_gpu_0() -> None:
    (finding,) = ask(FIRST.code, Source.RUN, rehearsed(lambda rank: (device(0, line=22 + rank),)))
    assert finding.where == where(23)


def test_a_tensor_on_the_gpu_of_another_rank() -> None:
    trace = rehearsed(lambda rank: (device(0, line=12), device(rank, "set", 22), device(rank)))
    (finding,) = ask(FIRST.code, Source.RUN, trace)
    assert finding.headline == "rank 1 put something on cuda:0, where another rank works"
    assert (finding.level, finding.where) == (Level.WARN, where(12))


def test_ranks_of_gloo_may_share() -> None:
    for which in (CROWD, FIRST):
        with pytest.raises(NotMeasured):
            which.examine_run(rehearsed(lambda rank: (device(0),), backend="gloo"))


def test_a_number_that_no_gpu_has() -> None:
    trace = rehearsed(lambda rank: (device(4 * rank, "set", 22),))
    (finding,) = ask(ORDINAL.code, Source.RUN, trace)
    assert finding.headline == "rank 1 used cuda:4, and its process sees 2 GPUs"
    assert (finding.ranks, finding.where) == ((1,), where(22))


def test_a_gpu_that_the_script_hides() -> None:
    trace = rehearsed(lambda rank: (device(rank, "set", 22, visible=1, variable="0"),))
    (finding,) = ask(ORDINAL.code, Source.RUN, trace)
    assert finding.headline == (
        "rank 1 used cuda:1, and its process sees 1 GPU: the script sets CUDA_VISIBLE_DEVICES='0'"
    )
    assert "Delete the line" in finding.fix


def test_a_gpu_that_the_launcher_hides() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0"}
    trace = rehearsed(lambda rank: (device(rank, "set", 22, visible=1, variable="0"),), environ=environ)
    (finding,) = ask(ORDINAL.code, Source.RUN, trace)
    assert finding.headline == "rank 1 used cuda:1, and its process sees 1 GPU"


def raising(kind: str, message: str, rank: int = 1) -> Trace:
    raised = Raised(kind, message, 5.0, at=where(33))
    return recorded(change=lambda own, one: replace(one, raised=raised) if own == rank else one)


def test_a_real_number_that_no_gpu_has() -> None:
    (finding,) = ask(
        ORDINAL.code, Source.RUN, raising("torch.AcceleratorError", "CUDA error: invalid device ordinal\n...")
    )
    assert finding.headline == "rank 1 used a GPU number that the process does not have"
    assert finding.where == where(33)


def test_two_real_ranks_on_one_gpu() -> None:
    message = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
    (finding,) = ask(CROWD.code, Source.RUN, raising("torch.distributed.DistBackendError", message))
    assert finding.headline == "rank 1 found two ranks on one GPU"


def test_a_rank_out_of_memory() -> None:
    message = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB"
    (finding,) = ask(MEMORY.code, Source.RUN, raising("torch.OutOfMemoryError", message))
    assert finding.headline == "rank 1 ran out of memory on GPU 1 (79.15 GiB), asking for 20.00 GiB"
    assert (finding.ranks, finding.where) == ((1,), where(33))


def test_a_worker_that_uses_cuda() -> None:
    frames = '  File "/usr/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 3, in loop\n'
    frames += '  File "/jobs/data.py", line 17, in __getitem__\n    return tensor.cuda()\n'
    message = (
        "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        f"{frames}RuntimeError: Cannot re-initialize CUDA in forked subprocess"
    )
    (finding,) = ask(FORKED.code, Source.RUN, raising("RuntimeError", message))
    assert finding.headline == "a forked process of rank 1 used CUDA after its parent had"
    assert finding.where == Where("/jobs/data.py", 17, "__getitem__")
    assert [row.text for row in finding.evidence] == [
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess (in a DataLoader worker)"
    ]


def test_ranks_on_the_cpu_are_skipped() -> None:
    for which in (ORDINAL, MEMORY, FORKED):
        assert isinstance(ask(which.code, Source.RUN, recorded()), Skipped), which.code
    for which in (CROWD, FIRST):
        with pytest.raises(NotMeasured):
            which.examine_run(recorded())

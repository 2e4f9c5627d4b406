"""Jobs that stand still, as plain data: each rank's stack as py-spy takes it, with what it was seen to do."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.recording import Recording

_TORCH = "/venv/lib/python3.11/site-packages/torch"
_PYTHON = "/usr/lib/python3.11"


def script(line: int, function: str = "main", file: str = "train.py") -> Frame:
    """A line of the user's script."""
    return Frame(function, file, line)


def torch(file: str, function: str, line: int = 1) -> Frame:
    """A line of torch."""
    return Frame(function, f"{_TORCH}/{file}", line)


def python(file: str, function: str, line: int = 1) -> Frame:
    """A line of Python's own library."""
    return Frame(function, f"{_PYTHON}/{file}", line)


def collective(operation: str, line: int) -> tuple[Frame, ...]:
    """A rank in a function of torch.distributed."""
    return (
        script(line),
        torch("distributed/c10d_logger.py", "_exception_logger.<locals>.wrapper"),
        torch("distributed/distributed_c10d.py", operation),
    )


def backward(line: int) -> tuple[Frame, ...]:
    """A rank whose reducer waits for the others' gradients."""
    return (
        script(line),
        torch("_tensor.py", "Tensor.backward"),
        torch("autograd/__init__.py", "backward"),
        torch("autograd/graph.py", "_engine_run_backward"),
    )


def forward(line: int) -> tuple[Frame, ...]:
    """A rank that waits for rank 0's buffers."""
    return (
        script(line),
        torch("nn/modules/module.py", "Module._call_impl"),
        torch("nn/parallel/distributed.py", "DistributedDataParallel.forward"),
        torch("nn/parallel/distributed.py", "DistributedDataParallel._sync_buffers"),
        torch("nn/parallel/distributed.py", "DistributedDataParallel._distributed_broadcast_coalesced"),
    )


def loader(line: int) -> tuple[Frame, ...]:
    """A rank that waits for a worker of its DataLoader."""
    return (
        script(line),
        torch("utils/data/dataloader.py", "_BaseDataLoaderIter.__next__"),
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data"),
        python("multiprocessing/queues.py", "Queue.get"),
        python("selectors.py", "_PollLikeSelector.select"),
    )


def worker(rank: int, line: int, *more: Frame, **fields: Any) -> SampledProcess:
    """A DataLoader worker in the script's __getitem__."""
    stack = (
        python("multiprocessing/process.py", "BaseProcess._bootstrap"),
        torch("utils/data/_utils/worker.py", "_worker_loop"),
        torch("utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch"),
        script(line, "Images.__getitem__", "data.py"),
        *more,
    )
    return process(rank, stack, pid=5000 + rank, role=ProcessRole.WORKER, **fields)


def queue(line: int) -> tuple[Frame, ...]:
    """A rank that waits for somebody to put something into a queue."""
    return (script(line), python("queue.py", "Queue.get"), python("threading.py", "Condition.wait"))


def process(rank: int, stack: tuple[Frame, ...], **fields: Any) -> SampledProcess:
    """One that stands and waits, unless said otherwise."""
    state = SampledProcess(1000 + rank, rank, stack=stack, again=stack, doing=Doing.WAITS, call="futex")
    return replace(state, **fields)


def snapshot(
    stacks: Mapping[int, tuple[Frame, ...] | SampledProcess], *others: SampledProcess, **fields: Any
) -> HangSnapshot:
    """The processes of these ranks; ``others`` are workers."""
    ranks = (one if isinstance(one, SampledProcess) else process(rank, one) for rank, one in stacks.items())
    return HangSnapshot((*ranks, *others), **{"seconds": 7.0, **fields})


def hung(still: HangSnapshot, recordings: Mapping[int, Recording] | None = None, **fields: Any) -> Trace:
    """A run that stood still; without recordings, as ``ddpdoctor hang`` sees a job of somebody else's."""
    seen = recordings or {}
    ranks = tuple(
        RankTrace(
            rank, recording=seen.get(rank), stack=still.ranks[rank].stack if rank in still.ranks else ()
        )
        for rank in sorted({*seen, *(still.ranks if seen else ())})
    )
    return Trace(ranks, **{"timed_out": bool(seen), "seconds": 20.0, "snapshot": still, **fields})

"""What a rank of a benchmark measures: training steps, phase by phase, and collectives by size.

A step's phases are timed by the clock, after the device has done what was queued; on a CPU nothing is. What
averaging the gradients adds to backward shows where the same step runs under ``no_sync`` too: steps with and
without take turns, so that a machine that is busy for a moment is so for both.

Sizes of collectives are those of nccl-tests: of the whole tensor that a rank has at the end of all_gather, or at the
beginning of reduce_scatter. Each call is waited for before the next, so a small one shows its latency.
"""

# mypy: allow-untyped-calls
# (torch leaves Tensor.backward untyped)

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ddpdoctor.bench.setting import HEADS, OPERATIONS, SETTING, Setting
from ddpdoctor.files import read_json
from ddpdoctor.group.context import Context
from ddpdoctor.group.measure.collectives import synchronize, timed
from ddpdoctor.recorder.events.decode import from_plain
from ddpdoctor.text import size

SECONDS = float("inf")

WARM_UP = 3
"""Steps; in the second, DDP puts its buckets into the order in which gradients come."""
BLOCK_SECONDS = 0.3
"""Steps in a row of one kind, before the other kind has its turn."""
FEWEST_STEPS, MOST_STEPS = 8, 2000
FEWEST_CALLS, MOST_CALLS = 5, 500
"""Of a collective, of which two more are not counted."""
_LEARNING_RATE = 1e-5
"""So small that the weights stay what they are, however many steps there are."""


VOCABULARY = 256
SAMPLES = 4096
"""Of one pass; nobody learns anything from them."""


def measure(context: Context) -> dict[str, Any]:
    """Seconds of every step and of every call of a collective."""
    setting = from_plain(Setting, read_json(context.folder / SETTING))
    torch.set_num_threads(setting.threads)
    timer = Timer(setting, context.device)
    rows: dict[str, Any] = {"parameters": timer.parameters, "gradient_bytes": timer.gradient_bytes}
    context.step("training steps")
    rows["steps"] = timer.time()
    if context.world_size == setting.nproc > 1:
        cases = product(OPERATIONS, setting.sizes)
        rows["collectives"] = [_row(context, setting, name, length) for name, length in cases]
    return rows


class Timer:
    """Times steps of one model on this rank."""

    def __init__(self, setting: Setting, device: torch.device) -> None:
        self._setting, self._device = setting, device
        self._ranks = dist.get_world_size()
        self._data = _random_bytes(setting.context)
        model = _Transformer(setting)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.gradient_bytes = sum(parameter.nbytes for parameter in model.parameters())
        # The C library keeps freed blocks up to the largest that it has seen. DDP's buckets are large, so a process
        # without them would return its memory to the system at each step, and look slower for no reason of ours.
        torch.empty(self.gradient_bytes, dtype=torch.uint8)

    def time(self) -> dict[str, Any]:
        """Seconds of every phase of every step, with averaging and, where there are several ranks, without."""
        # A single process is one without DDP: that is what more ranks are compared with.
        torch.manual_seed(0)
        bare = _Transformer(self._setting).to(self._device)
        model = DistributedDataParallel(bare) if self._ranks > 1 else bare
        stepper = _Stepper(model, self._batches(), self._device)
        for _ in range(WARM_UP):
            stepper.step(synced=True)
        kinds = ("synced", "unsynced") if self._ranks > 1 else ("synced",)
        block, blocks = self._block_size(stepper, len(kinds))
        timings: dict[str, Any] = {"synced": [], "unsynced": []}
        for _ in range(blocks):
            for kind in kinds:
                dist.barrier()
                timings[kind] += [stepper.step(synced=kind == "synced") for _ in range(block)]
        return timings

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        loader = DataLoader(self._data, self._setting.batch_size, shuffle=True, drop_last=True)
        while True:
            yield from loader

    def _block_size(self, stepper: _Stepper, kinds: int) -> tuple[int, int]:
        """Steps of a block, and blocks, the same on every rank: what rank 0 needs for the time it has."""
        began = time.perf_counter()
        for _ in range(WARM_UP):
            stepper.step(synced=True)
        step = (time.perf_counter() - began) / WARM_UP
        wanted = self._setting.seconds / kinds / step
        steps = min(MOST_STEPS, max(FEWEST_STEPS, round(wanted)))
        block = min(steps, max(2, round(BLOCK_SECONDS / step)))
        agreed = torch.tensor([block, -(-steps // block)], device=self._device)
        dist.broadcast(agreed, src=0)
        return int(agreed[0]), int(agreed[1])


class _Stepper:
    """Makes one step after another."""

    def __init__(
        self, model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], device: torch.device
    ) -> None:
        self._model, self._batches, self._device = model, batches, device
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)

    def step(self, *, synced: bool) -> list[float]:
        """Seconds of each phase."""
        times = [time.perf_counter()]
        inputs, targets = (tensor.to(self._device) for tensor in next(self._batches))
        self._note(times)
        unsynced = isinstance(self._model, DistributedDataParallel) and not synced
        with self._model.no_sync() if unsynced else contextlib.nullcontext():  # type: ignore[operator]
            loss = self._model(inputs, targets)
            self._note(times)
            loss.backward()
            self._note(times)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._note(times)
        return [later - earlier for earlier, later in pairwise(times)]

    def _note(self, times: list[float]) -> None:
        synchronize(self._device)
        times.append(time.perf_counter())


# -- the work that is timed: a small transformer on random bytes ---------------------------------------------------


def _random_bytes(context: int) -> TensorDataset:
    """Samples as text would be cut into: bytes, and the same moved on by one."""
    drawn = torch.randint(VOCABULARY, (SAMPLES, context + 1), generator=torch.Generator().manual_seed(0))
    return TensorDataset(drawn[:, :-1], drawn[:, 1:])


class _Transformer(nn.Module):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.byte = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, HEADS, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(setting.layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        length = inputs.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=inputs.device)
        hidden = self.byte(inputs)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


# -- collectives ------------------------------------------------------------------------------------------------


def _row(context: Context, setting: Setting, name: str, length: int) -> dict[str, Any]:
    """Seconds of every call of an operation with this size; or why the backend does not have it."""
    context.step(f"{name} of {size(length)}")
    row, device = {"operation": name, "bytes": length}, context.device
    call = _call(name, length, device)
    try:
        once = min(timed(device, call) for _ in range(2))
    except (RuntimeError, NotImplementedError, ValueError) as refused:
        # A backend says so on every rank, before it sends anything.
        return {**row, "unsupported": str(refused).partition("\n")[0]}
    wanted = min(MOST_CALLS, max(FEWEST_CALLS, round(setting.collective_seconds / once)))
    calls = torch.tensor([wanted], device=device)
    dist.broadcast(calls, src=0)
    dist.barrier()
    return {**row, "seconds": [timed(device, call) for _ in range(int(calls))]}


def _call(name: str, length: int, device: torch.device) -> Callable[[], object]:
    ranks = dist.get_world_size()
    # Sums of zeros stay zeros however often they are taken. Written, or all pages would be the same one.
    part = torch.empty(max(1, length // 4 // ranks), device=device).fill_(0.0)
    whole = torch.empty(part.numel() * ranks, device=device).fill_(0.0)
    # Their names since torch 2.13, and before.
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: gather(whole, part),
        "reduce_scatter": lambda: scatter(part, whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
    }
    return calls[name]

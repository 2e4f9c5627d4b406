"""The gradient of one process on the batches of all ranks, where --exact asks for it.

Two runs of the same script. In the first each rank keeps the batches that it takes for its first update, and rank 0
the weights before it and the gradients that went into it. In the second, one process, the same loader yields the
ranks' batches put together, the optimizer's parameters get those weights, and at the first update both gradients
are compared. All that lies between, loss and accumulation, is the script's own code, so a factor that is missing
shows as it is. Where the two runs may rightly differ, the reason is written down instead.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import time
from collections.abc import Iterator
from typing import Any

from ..digest import unseen
from ..events.process import Exit
from ..events.updates import Exact
from ..options import KEEP
from ..patch import Make, after_call, around, guarded
from ..randomness import states
from ..session import Session
from ..training import Training, parameters_of

LARGEST = 256 << 20
"""Bytes of batches that a rank keeps."""
_BATCHES, _UPDATE = "exact-batches-{rank}.pt", "exact-update.pt"
_NUMBER = "_ddpdoctor_number"
_PER_RANK = ("_BatchNorm", "InstanceNorm")


def install(session: Session) -> None:
    """Stand between DataLoaders and loops, and before the first update; nothing where it was not asked for."""
    wanted = session.options.exact
    if not wanted:
        return
    exact: Keep | Replay
    make: Make
    if wanted == KEEP:
        exact = keep = Keep(session)
        make = after_call(lambda batch, args, kwargs: keep.took(args[0], batch))
    else:
        exact = replay = Replay(session, wanted)
        make = around(lambda original, iterator: replay.instead_of(iterator, original(iterator)))
    iterators = session.torch.utils.data.dataloader
    for kind in (iterators._SingleProcessDataLoaderIter, iterators._MultiProcessingDataLoaderIter):
        session.patch(kind, "_next_data", make)
    session.install("optimizer")  # what is about to be compared is looked at first
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
    session.on_undo(register(lambda optimizer, *_: exact.updating(optimizer)).remove)


class Keep:
    """The first run: batches, weights and gradients of the first update."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.done = False
        self._numbers = _Numbers()
        self._current = -1
        """The iterator that gives batches."""
        self._held: list[Any] = []
        self._bytes = 0
        self._mixed = False
        """Whether an iterator gave a batch after a later one had begun."""
        self._streams: dict[str, str] = {}
        """Where the random streams stood when the last batch was given."""

    @guarded
    def took(self, iterator: Any, batch: Any) -> None:
        if self.done:
            return
        number = self._numbers.of(iterator)
        if number > self._current:  # what an earlier loop took was for something else
            self._current, self._held, self._bytes, self._mixed = number, [], 0, False
        elif number < self._current:
            self._mixed = True
        self._bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(batch))
        self._held = [*self._held, batch] if self._bytes <= LARGEST else []
        self._streams = states(self.session.torch)

    @guarded
    def updating(self, optimizer: Any) -> None:
        if self.done:
            return
        self.done = True
        rank = self.session.rank or 0
        try:
            self._refuse()
            _refuse_what_differs(self.session, optimizer)
            if states(self.session.torch) != self._streams:
                raise NotComparable("its first update draws random numbers, on each rank its own")
            with unseen(self.session.torch):
                kept = {"iterator": self._current, "batches": self._held}
                write_batches(self._path(_BATCHES.format(rank=rank)), kept)
                if rank == 0:
                    write_batches(self._path(_UPDATE), _update(self.session, optimizer))
        except NotComparable as why:
            self.session.event(Exact(refused=str(why)), now=True)
        finally:
            self._held = []

    def _path(self, name: str) -> str:
        return os.path.join(self.session.folder, name)

    def _refuse(self) -> None:
        if self._mixed:
            raise NotComparable("several DataLoaders feed its first update")
        if self._bytes > LARGEST:
            raise NotComparable(f"the batches of its first update have more than {LARGEST >> 20} MiB")
        if not self._held:
            raise NotComparable("the batches of its first update do not come from a DataLoader")


class Replay:
    """The second run: one process on all ranks' batches. It ends at the first update, or where it has to give up."""

    def __init__(self, session: Session, folder: str) -> None:
        self.session = session
        self._numbers = _Numbers()
        self._iterator: Any = None
        self._given = 0
        names = sorted(name for name in os.listdir(folder) if name.startswith("exact-batches-"))
        kept = [read_batches(os.path.join(folder, name)) for name in names]
        self.number: int = kept[0]["iterator"]
        self.taken = [rank_batches["batches"] for rank_batches in kept]
        """The batches of each rank."""
        self.update = read_batches(os.path.join(folder, _UPDATE))

    def instead_of(self, iterator: Any, batch: Any) -> Any:
        """What the loop gets for a batch."""
        replaced = self._replace(iterator)
        return batch if replaced is None else replaced[0]

    @guarded
    def _replace(self, iterator: Any) -> tuple[Any] | None:
        if self._numbers.of(iterator) != self.number:
            return None
        try:
            if self._iterator is None:
                self._iterator = iterator
                self._set_weights()
            return (self._next_batch(),)
        except NotComparable as why:
            self._end(Exact(refused=str(why)))
            raise

    def _next_batch(self) -> Any:
        counts = {len(batches) for batches in self.taken}
        if len(counts) > 1:
            raise NotComparable("the ranks took different numbers of batches for their first update")
        if self._given == len(self.taken[0]):
            raise NotComparable("one process takes more batches for its first update than each rank did")
        self._given += 1
        with unseen(self.session.torch):
            return join_batches(self.session.torch, tuple(batches[self._given - 1] for batches in self.taken))

    def _set_weights(self) -> None:
        shapes = [tuple(tensor.shape) for tensor in self.update["weights"]]
        made = list(Training.of(self.session).optimizers)
        optimizer = next(
            (candidate for candidate in made if [tuple(p.shape) for p in parameters_of(candidate)] == shapes),
            None,
        )
        if optimizer is None:
            raise NotComparable(
                "one process makes no optimizer of the same parameters before its first batch"
            )
        with unseen(self.session.torch):
            for parameter, weight in zip(parameters_of(optimizer), self.update["weights"], strict=True):
                parameter.detach().copy_(weight)

    @guarded
    def updating(self, optimizer: Any) -> None:
        """An optimizer is about to step: compare."""
        if self._iterator is None:
            return
        try:
            if self._given != len(self.taken[0]):
                given = (
                    f"one process updates after {self._given} batches, each rank after {len(self.taken[0])}"
                )
                raise NotComparable(given)
            with unseen(self.session.torch):
                compared = self._compare(optimizer)
        except NotComparable as why:
            self._end(Exact(refused=str(why)))
        else:
            self._end(compared)

    def _end(self, exact: Exact) -> None:
        from ..shorten import end_process

        self.session.event(exact)
        self.session.event(Exit("shortened", time.monotonic(), 0), now=True)
        end_process(0)

    def _compare(self, optimizer: Any) -> Exact:
        of_process = [
            None if p.grad is None else p.grad.to("cpu").double().flatten() for p in parameters_of(optimizer)
        ]
        of_ranks = [None if g is None else g.double().flatten() for g in self.update["gradients"]]
        keys = self.update["keys"]
        rows = zip(keys, of_ranks, of_process, strict=True)
        pairs = [(key, a, b) for key, a, b in rows if a is not None and b is not None]
        if not pairs:
            raise NotComparable("no parameter has a gradient in both runs")
        dot = sum(float(a @ b) for _, a, b in pairs)
        size = sum(float(b @ b) for _, _, b in pairs)
        size_of_ranks = sum(float(a @ a) for _, a, _ in pairs)
        if not size or not size_of_ranks:
            raise NotComparable("a gradient is zero")
        worst = max(pairs, key=lambda pair: float((pair[1] - pair[2]).norm() / (pair[2].norm() + 1e-30)))
        return Exact(
            scale=dot / size,
            error=(sum(float((a - b) @ (a - b)) for _, a, b in pairs) / size) ** 0.5,
            cosine=dot / (size * size_of_ranks) ** 0.5,
            parameters=len(pairs),
            worst=worst[0],
            dtypes=tuple(
                sorted({str(p.grad.dtype)[6:] for p in parameters_of(optimizer) if p.grad is not None})
            ),
        )


class _Numbers:
    """Iterators in the order of their first batch, which is the same in both runs."""

    def __init__(self) -> None:
        self._next = 0

    def of(self, iterator: Any) -> int:
        known = vars(iterator)
        if _NUMBER not in known:
            known[_NUMBER], self._next = self._next, self._next + 1
        return int(known[_NUMBER])


def _refuse_what_differs(session: Session, optimizer: Any) -> None:
    """Layers whose result is rightly another where a batch is not divided, or is drawn at random."""
    nn = session.torch.nn
    for _, ddp in Training.of(session).living():
        for module in ddp.modules():
            name = type(module).__name__
            if not module.training:
                continue
            if any(kind.__name__ in _PER_RANK for kind in type(module).__mro__) and name != "SyncBatchNorm":
                raise NotComparable(f"{name} takes its statistics from the batch of each rank")
            if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
                raise NotComparable(f"{name} draws at random, on each rank its own")
    for group in optimizer.param_groups:
        if any(hasattr(parameter, "placements") for parameter in group["params"]):
            raise NotComparable("its parameters are sharded")


def _update(session: Session, optimizer: Any) -> dict[str, Any]:
    groups = [group["params"] for group in optimizer.param_groups]
    parameters = list(parameters_of(optimizer))
    return {
        "keys": Training.of(session).keys.of_groups(groups),
        "weights": [parameter.detach().to("cpu").clone() for parameter in parameters],
        "gradients": [None if p.grad is None else p.grad.detach().to("cpu").clone() for p in parameters],
    }


class NotComparable(Exception):
    """Why the two gradients would rightly differ, or cannot be had."""


def write_batches(path: str, content: Any) -> None:
    """Write containers of tensors.

    Raises:
        NotComparable: something in it cannot be written.
    """
    try:
        with open(path, "wb") as file:
            _Pickler(file, protocol=4).dump(content)
    except (pickle.PicklingError, AttributeError, TypeError) as broken:
        raise NotComparable(f"a batch of it cannot be kept: {broken}") from None


def read_batches(path: str) -> Any:
    with open(path, "rb") as file:
        # Written by this very command a moment ago; a batch may hold any class of the script's.
        return pickle.load(file)


class _Pickler(pickle.Pickler):
    """Writes tensors as bytes: torch's own way goes through torch.save, which is watched."""

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, sys.modules["torch"].Tensor):
            refuse_class(type(thing))
            return NotImplemented
        plain = thing.detach().to("cpu").contiguous()
        data = ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())
        return _tensor, (data, str(plain.dtype).removeprefix("torch."), tuple(plain.shape))


def refuse_class(kind: type) -> None:
    """Refuse what cannot be kept or compared without running code of the script's classes.

    Raises:
        NotComparable: the class is neither Python's nor torch's nor numpy's, and no named tuple.
    """
    known = kind.__module__.partition(".")[0] in (*sys.stdlib_module_names, "torch", "numpy")
    if not (known or (issubclass(kind, tuple) and hasattr(kind, "_fields"))):
        raise NotComparable(f"a batch holds {kind.__name__}, which ddpdoctor cannot put together")


def _tensor(data: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    torch = sys.modules["torch"]
    if not data:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).reshape(shape)


def tensors_in(batch: Any) -> Iterator[Any]:
    """The tensors in containers, however deep."""
    if isinstance(batch, sys.modules["torch"].Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_in(value)


def join_batches(torch: Any, parts: tuple[Any, ...]) -> Any:
    """The batches of all ranks as one: tensors along their first dimension, containers value by value.

    Raises:
        NotComparable: they do not fit together.
    """
    first = parts[0]
    for part in parts:
        refuse_class(type(part))
    if isinstance(first, torch.Tensor):
        if len({tuple(part.shape[1:]) for part in parts}) > 1:
            raise NotComparable("the ranks' batches have different shapes and cannot be put together")
        return first if first.dim() == 0 else torch.cat(parts)
    if isinstance(first, dict):
        return type(first)({key: join_batches(torch, tuple(part[key] for part in parts)) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(join_batches(torch, values) for values in zip(*parts, strict=True)))
    if isinstance(first, list | tuple):
        if all(isinstance(value, str) for part in parts for value in part):
            return type(first)(value for part in parts for value in part)  # names or texts, one a sample
        return type(first)(join_batches(torch, values) for values in zip(*parts, strict=True))
    if all(part == first for part in parts):
        return first
    raise NotComparable(f"a batch holds {type(first).__name__}, which ddpdoctor cannot put together")

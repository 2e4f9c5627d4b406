"""The gradient of one process on the batches of all ranks, to hold against what the ranks computed together.

Two runs of the same script. In the first each rank keeps the batches that it takes for its first update, and rank 0
the weights before it and the gradients that went into it. In the second, one process, the same loader yields the
ranks' batches put together, the optimizer's parameters get those weights, and at the first update both gradients
are compared. All that lies between, loss and accumulation, is the script's own code, so a factor that is missing
shows as it is. Where the two runs may rightly differ, the reason is written down instead.
"""

from __future__ import annotations

import os
import time
from typing import Any

from .batches import NotComparable, join, read, tensors_in, write
from .digest import unseen
from .events.process import Exit
from .events.updates import Exact
from .guard import guarded
from .randomness import states
from .session import Session
from .training import Training, parameters_of

LARGEST = 256 << 20
"""Bytes of batches that a rank keeps."""
_BATCHES, _UPDATE = "exact-batches-{rank}.pt", "exact-update.pt"
_NUMBER = "_ddpdoctor_number"
_PER_RANK = ("_BatchNorm", "InstanceNorm")


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
        """A loop was given a batch."""
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
        """An optimizer is about to step."""
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
                write(self._path(_BATCHES.format(rank=rank)), kept)
                if rank == 0:
                    write(self._path(_UPDATE), _update(self.session, optimizer))
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
        kept = [read(os.path.join(folder, name)) for name in names]
        self.number: int = kept[0]["iterator"]
        self.taken = [rank_batches["batches"] for rank_batches in kept]
        """The batches of each rank."""
        self.update = read(os.path.join(folder, _UPDATE))

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
            return join(self.session.torch, tuple(batches[self._given - 1] for batches in self.taken))

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
        from .shorten import end_process

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
            batches=self._given,
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
        """The iterator's number."""
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

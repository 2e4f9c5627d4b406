"""The collectives under test, each with inputs whose answer is known without communicating."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

_PERIOD = 61  # prime, so that no two blocks begin at the same place of the pattern
_LARGEST = 3
_EXACT = 85  # bfloat16 holds integers up to 256: the sum of this many values up to 3 is exact
_ROOT = 0


@dataclass(frozen=True)
class Trial:
    """One collective, ready to be called."""

    call: Callable[..., Any]
    """Takes ``async_op``, and then returns what to wait for, as the functions of torch.distributed do."""
    got: torch.Tensor
    """Where the call leaves its answer."""
    expected: torch.Tensor
    rtol: float = 0.0

    def first_wrong(self) -> dict[str, Any] | None:
        """The first element that is not what it should be; None where the answer is right."""
        wrong = (~self._alike()).nonzero()
        if not len(wrong):
            return None
        index = int(wrong[0])
        return {"index": index, "expected": self.expected[index].item(), "got": self.got[index].item()}

    def _alike(self) -> torch.Tensor:
        if self.rtol:
            return (self.got - self.expected).abs() <= self.rtol * self.expected
        return self.got == self.expected


@dataclass(frozen=True)
class Pattern:
    """The inputs of one trial: small integers, different on every rank, that repeat every 61 elements."""

    rank: int
    world_size: int
    dtype: torch.dtype
    device: torch.device
    length: int
    """Bytes wanted for the whole, which ``all_gather`` and its like divide among the ranks."""

    @property
    def block_count(self) -> int:
        """Elements of one rank's part of the whole."""
        return max(1, self.length // self.dtype.itemsize // self.world_size)

    @property
    def count(self) -> int:
        return self.block_count * self.world_size

    @property
    def bytes(self) -> int:
        return self.count * self.dtype.itemsize

    def whole(self, rank: int) -> torch.Tensor:
        """All that a rank has."""
        return self._repeat(self._tiles[rank], 0, self.count)

    def block(self, rank: int, index: int) -> torch.Tensor:
        """The part number ``index`` of what a rank has."""
        return self._repeat(self._tiles[rank], index * self.block_count, self.block_count)

    def reduced(self, how: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """All elements reduced over the ranks."""
        return self._repeat(how(self._tiles), 0, self.count)

    def own_block(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of the whole."""
        return whole[self.rank * self.block_count :][: self.block_count]

    def empty(self, count: int) -> torch.Tensor:
        """Room for an answer, filled with a value that no answer has."""
        return torch.full((count,), -1, dtype=self.dtype, device=self.device)

    @property
    def _tiles(self) -> torch.Tensor:
        return _tiles(self.world_size)

    def _repeat(self, tile: torch.Tensor, start: int, count: int) -> torch.Tensor:
        turned = tile.roll(-(start % _PERIOD)).to(device=self.device, dtype=self.dtype)
        return turned.repeat(-(-count // _PERIOD))[:count]


@cache
def _tiles(world_size: int) -> torch.Tensor:
    return torch.stack([_tile(rank, world_size) for rank in range(world_size)])


def _tile(rank: int, world_size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    values = torch.randint(1, _LARGEST + 1, (_PERIOD,), generator=generator)
    stride = -(-world_size // _EXACT)
    return values * ((torch.arange(_PERIOD) + rank) % stride == 0)


@dataclass(frozen=True)
class Collective:
    """How to try one operation."""

    prepare: Callable[[Pattern], Trial]
    integers: bool = True
    fewest_ranks: int = 1


def _all_reduce(op: Any, on_tiles: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Pattern], Trial]:
    def prepare(pattern: Pattern) -> Trial:
        x = pattern.whole(pattern.rank)
        # A backend may divide before or after it adds, so each addend and each addition may round once.
        rtol = (pattern.world_size + 2) * torch.finfo(pattern.dtype).eps if op == dist.ReduceOp.AVG else 0.0
        return Trial(lambda **how: dist.all_reduce(x, op, **how), x, pattern.reduced(on_tiles), rtol)

    return prepare


def _broadcast(pattern: Pattern) -> Trial:
    root = pattern.world_size - 1
    x = pattern.whole(pattern.rank)
    return Trial(lambda **how: dist.broadcast(x, root, **how), x, pattern.whole(root))


def _all_gather(pattern: Pattern) -> Trial:
    x, got = pattern.block(pattern.rank, pattern.rank), pattern.empty(pattern.count)
    blocks = list(got.chunk(pattern.world_size))
    return Trial(lambda **how: dist.all_gather(blocks, x, **how), got, _diagonal(pattern))


def _reduce_scatter(pattern: Pattern) -> Trial:
    blocks = list(pattern.whole(pattern.rank).chunk(pattern.world_size))
    got = pattern.empty(pattern.block_count)
    expected = pattern.own_block(pattern.reduced(lambda tiles: tiles.sum(0)))
    return Trial(lambda **how: dist.reduce_scatter(got, blocks, **how), got, expected)


def _all_to_all(pattern: Pattern) -> Trial:
    x, got = pattern.whole(pattern.rank), pattern.empty(pattern.count)
    expected = torch.cat([pattern.block(sender, pattern.rank) for sender in range(pattern.world_size)])
    return Trial(lambda **how: dist.all_to_all_single(got, x, **how), got, expected)


def _gather(pattern: Pattern) -> Trial:
    x = pattern.block(pattern.rank, pattern.rank)
    if pattern.rank != _ROOT:
        return Trial(lambda **how: dist.gather(x, None, _ROOT, **how), x, x.clone())
    got = pattern.empty(pattern.count)
    blocks = list(got.chunk(pattern.world_size))
    return Trial(lambda **how: dist.gather(x, blocks, _ROOT, **how), got, _diagonal(pattern))


def _scatter(pattern: Pattern) -> Trial:
    got, expected = pattern.empty(pattern.block_count), pattern.block(_ROOT, pattern.rank)
    blocks = list(pattern.whole(_ROOT).chunk(pattern.world_size)) if pattern.rank == _ROOT else None
    return Trial(lambda **how: dist.scatter(got, blocks, _ROOT, **how), got, expected)


def _send_recv(pattern: Pattern) -> Trial:
    before, after = ring_neighbours(pattern.rank, pattern.world_size)
    x, got = pattern.whole(pattern.rank), pattern.empty(pattern.count)

    def exchange(*, async_op: bool = False) -> list[Any]:
        works = start_exchange(x, after, got, before)
        if not async_op:
            wait(works)
        return works

    return Trial(exchange, got, pattern.whole(before))


def _diagonal(pattern: Pattern) -> torch.Tensor:
    return torch.cat([pattern.block(rank, rank) for rank in range(pattern.world_size)])


def ring_neighbours(rank: int, world_size: int) -> tuple[int, int]:
    """Whom a rank receives from and whom it sends to, in a ring of all ranks."""
    return (rank - 1) % world_size, (rank + 1) % world_size


def start_exchange(x: torch.Tensor, to: int, got: torch.Tensor, sender: int) -> list[Any]:
    """Begin to send to one rank while receiving from another; what to wait for, the receiving first."""
    return list(dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, sender), dist.P2POp(dist.isend, x, to)]))


def wait(works: Any) -> None:
    """Wait for what an asynchronous call returned: one work, several, or none where it was done at once."""
    for work in works if isinstance(works, list) else [works]:
        if work is not None:
            work.wait()


COLLECTIVES = {
    "all_reduce sum": Collective(_all_reduce(dist.ReduceOp.SUM, lambda x: x.sum(0))),
    "all_reduce avg": Collective(
        _all_reduce(dist.ReduceOp.AVG, lambda x: x.double().mean(0)), integers=False
    ),
    "all_reduce max": Collective(_all_reduce(dist.ReduceOp.MAX, lambda x: x.amax(0))),
    "broadcast": Collective(_broadcast),
    "all_gather": Collective(_all_gather),
    "reduce_scatter": Collective(_reduce_scatter),
    "all_to_all": Collective(_all_to_all),
    "gather": Collective(_gather),
    "scatter": Collective(_scatter),
    "send/recv": Collective(_send_recv, fewest_ranks=2),
}
"""The operations by name, the simplest first."""

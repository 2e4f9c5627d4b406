from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import PurePath

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.redact import quote
from ddpdoctor.text import plural, ranks_phrase, size
from ddpdoctor.trace import Trace
from ddpdoctor.trace.files import Save
from ddpdoctor.trace.order import Order
from ddpdoctor.trace.recording import Recording


class WrittenByEveryRank(Check):
    """Several ranks write the same checkpoint file.

    What it finds:
        A path that more than one rank of a host gives to torch.save, with nothing that makes one wait for the
        other. Files of each rank's own, and ranks that take turns, are left alone.

    Why it matters:
        All ranks open, empty and fill one file at once. Mostly the last one wins and the file is whole, as the
        weights are equal; now and then the parts mix, and the checkpoint of the night cannot be read. On a shared
        filesystem it also costs as many writes as there are ranks.

    Example:
        for epoch in range(epochs):
            train(...)
            torch.save(model.module.state_dict(), "last.pt")         # on every rank

    Fix:
        Write on rank 0, and let the others wait where they read it:
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "last.pt")
            dist.barrier()
    """

    code = "DD402"
    name = "written-by-every-rank"
    family = Family.CHECKPOINT
    title = "each checkpoint is written by one rank"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        if len(recordings) < 2:
            return Skipped("there is one rank")
        if not any(save.path for one in recordings.values() for save in one.saves):
            return Skipped("no rank saved anything")
        shared = {path: ranks for path, ranks in _writers(recordings).items() if len(ranks) > 1}
        if shared:
            return [self._shared(shared, recordings)]
        paths = {save.path for one in recordings.values() for save in one.saves if save.path}
        return Passed(f"{plural(len(paths), 'file')} saved, each by one rank")

    def _shared(self, shared: Mapping[str, set[int]], recordings: Mapping[int, Recording]) -> Finding:
        path, ranks = next(iter(shared.items()))
        saves = {rank: _saves(recordings[rank], path) for rank in sorted(ranks)}
        first = next(iter(saves.values()))[0]
        more = f" and {plural(len(shared) - 1, 'more file')}" if len(shared) > 1 else ""
        return self.fail(
            f"{ranks_phrase(ranks)} write the same file {quote(PurePath(path).name)}{more}",
            why="Every rank opens, empties and fills it at once. Where the writes mix, the checkpoint cannot be read, "
            "which shows only when it is needed.",
            fix="if dist.get_rank() == 0:\n    torch.save(state, path)\ndist.barrier()",
            ranks=tuple(saves),
            where=first.at,
            evidence=tuple(
                Evidence(f"saved {plural(len(own), 'time')}, {size(own[0].size or 0)}", (rank,))
                for rank, own in saves.items()
            ),
        )


def _saves(recording: Recording, path: str) -> list[Save]:
    return [save for save in recording.saves if save.path == path]


def _writers(recordings: Mapping[int, Recording]) -> dict[str, set[int]]:
    """By path, the ranks that write it at a time when another rank of their host may."""
    order = Order(recordings)
    found: dict[str, set[int]] = {}
    for a, b in combinations(recordings, 2):
        if recordings[a].host == recordings[b].host:
            for path in _unordered(order, a, recordings[a], b, recordings[b]):
                found.setdefault(path, set()).update((a, b))
    return found


def _unordered(order: Order, a: int, one: Recording, b: int, other: Recording) -> Iterator[str]:
    for save in one.saves:
        others = _saves(other, save.path) if save.path and not save.path.startswith("/dev/") else []
        if any(order.may_overlap(a, _span(save), b, _span(own)) for own in others):
            yield save.path


def _span(save: Save) -> tuple[float, float]:
    return save.begin, save.begin if save.end is None else save.end

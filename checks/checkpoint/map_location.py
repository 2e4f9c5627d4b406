import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.logs.log import UNSAID, Log, Raised, told_by
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.files import Load
from ddpdoctor.trace.recording import Recording

_ABSENT_DEVICE = r"Attempting to deserialize object on (a CUDA device|CUDA device \d+)"


class MapLocation(Check):
    """Every rank restores a checkpoint onto the same GPU.

    What it finds:
        torch.load calls whose tensors come to lie on another GPU than the rank's own, mostly rank 0's: without
        map_location they go back to where they were saved from. Needs GPUs, or a rehearsal.

    Why it matters:
        Every rank opens a context and keeps a copy of the checkpoint on GPU 0, some gigabytes each. GPU 0 runs out
        of memory, at resume only, with a batch size that fitted before.

    Example:
        state = torch.load("last.pt")           # saved from cuda:0, so every rank loads onto cuda:0

    Fix:
        Load into host memory, from where load_state_dict copies to the right device:
            state = torch.load("last.pt", map_location="cpu")
    """

    code = "DD406"
    name = "map-location"
    family = Family.CHECKPOINT
    title = "each rank restores onto its own GPU"
    raises = (_ABSENT_DEVICE,)

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        loads = [load for one in recordings.values() for load in one.loads if not load.error]
        if not loads:
            return Skipped("no checkpoint was read")
        if not any(one.devices for one in recordings.values()):
            return Skipped("no rank uses a GPU, real or rehearsed")
        wrong = {rank: bad for rank, one in recordings.items() if (bad := _astray(one))}
        if wrong:
            return [self._elsewhere(wrong, recordings)]
        return Passed("checkpoints are restored into host memory, or onto each rank's own GPU")

    def examine_log(self, log: Log) -> Judgement:
        told = log.told(*self.raises)
        full = next((one for one in log.fatal if _full_in_load(one)), None)
        if told:
            return [
                self._told(
                    f"a checkpoint was saved from {told.match[1]}, which is not here", told_by(*told.by)
                )
            ]
        if full:
            return [
                self._told("a GPU had no memory left for a checkpoint that was restored to it", told_by(full))
            ]
        return UNSAID

    def _told(self, headline: str, said: dict[str, Any]) -> Finding:
        return self.fail(
            headline,
            why="torch.load puts every tensor back on the device that it was saved from, mostly GPU 0, on every rank.",
            fix='torch.load(path, map_location="cpu")',
            **said,
        )

    def _elsewhere(self, wrong: Mapping[int, Load], recordings: Mapping[int, Recording]) -> Finding:
        load = next(iter(wrong.values()))
        where = ", ".join(sorted({f"cuda:{index}" for index in _indices(load)}))
        given = f"map_location={load.map_location}" if load.map_location else "no map_location"
        return self.fail(
            f"{ranks_phrase(wrong)} {'restores' if len(wrong) == 1 else 'restore'} "
            f"{quote(PurePath(load.path).name)} onto {where}, not onto {'its' if len(wrong) == 1 else 'their'} "
            "own GPU",
            why=f"With {given}, tensors go to one GPU on every rank. Each rank opens a context there and holds "
            "a copy, "
            "so that GPU runs out of memory.",
            fix='state = torch.load(path, map_location="cpu")',
            ranks=tuple(wrong),
            where=load.at,
            evidence=tuple(
                Evidence(
                    f"restored onto {', '.join(own.devices)}; its own GPU is cuda:{_own(recordings[rank])}",
                    (rank,),
                )
                for rank, own in wrong.items()
            ),
        )


def _astray(recording: Recording) -> Load | None:
    """The first read whose tensors came to lie on a GPU that is not the rank's own."""
    own = _own(recording)
    if own is None:
        return None
    return next((load for load in recording.loads if not load.error and _indices(load) - {own}), None)


def _own(recording: Recording) -> int | None:
    """The GPU that the rank set last, or else used first; what it loads onto tells nothing."""
    chosen = [device.index for device in recording.devices if device.how == "set"]
    used = [device.index for device in recording.devices if device.how == "use"]
    return chosen[-1] if chosen else used[0] if used else None


def _indices(load: Load) -> set[int]:
    return {int(found[1]) for device in load.devices if (found := re.fullmatch(r"cuda:(\d+)", device))}


def _full_in_load(raised: Raised) -> bool:
    in_load = any("serialization.py" in frame.file and "load" in frame.function for frame in raised.frames)
    return in_load and "out of memory" in raised.text

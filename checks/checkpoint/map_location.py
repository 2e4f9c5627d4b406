import re

from ddpdoctor.check import Check, Findings, Judgement, Kind, Passed
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, Raised, log_fields
from ddpdoctor.recorder.events.files import Load
from ddpdoctor.text import ranks_do
from ddpdoctor.trace import Recording, Trace, by_line, on_each_rank
from ddpdoctor.trace.instances import files


class MapLocation(Check):
    """Every rank restores a checkpoint onto the same GPU.

    What it finds:
        torch.load calls whose tensors end on another GPU than that of the rank, mostly rank 0's: without map_location
        they go back to where they were saved from. Needs GPUs, or a rehearsal.

    Why it matters:
        torch.load restores every tensor to the device that it was saved from, mostly GPU 0, or to the one that
        map_location names. Every rank opens a context and keeps a copy of the checkpoint on GPU 0, some gigabytes
        each. GPU 0 runs out of memory, at resume only, with a batch size that fitted before.

    Example:
        state = torch.load("last.pt")           # saved from cuda:0, so every rank loads onto cuda:0

    Fix:
        Load into host memory, from where load_state_dict copies to the right device:
            state = torch.load("last.pt", map_location="cpu")
    """

    code = "DD406"
    title = "each rank restores onto its own GPU"
    raises = (r"Attempting to deserialize object on (a CUDA device|CUDA device \d+)",)

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.recordings()
        loads = on_each_rank(recordings, lambda recording: recording.loads)
        loads = [(rank, load) for rank, load in loads if not load.error]
        self.require(loads, "no checkpoint was read")
        self.require(any(it.devices for it in recordings.values()), "no rank uses a GPU, real or rehearsed")
        gpus = {rank: _gpu(recording) for rank, recording in recordings.items()}
        others = ((rank, it) for rank, it in loads if gpus[rank] is not None and _indices(it) - {gpus[rank]})
        for astray in by_line(others):
            load = next(iter(astray.values()))
            devices = ", ".join(sorted({f"cuda:{index}" for index in _indices(load)}))
            given = f"map_location={load.map_location}" if load.map_location else "no map_location"
            yield self.fail(
                f"{ranks_do(astray, 'restore')} {files([load.path])} onto {devices}, not onto "
                f"{'its' if len(astray) == 1 else 'their'} own GPU",
                where=load.at,
                evidence={
                    rank: f"restored onto {', '.join(load.devices)}, {given}; its own GPU is cuda:{gpus[rank]}"
                    for rank, load in astray.items()
                },
                about=Kind.PATH.of(*{load.path: None for load in astray.values()}),
            )
        yield Passed("checkpoints are restored into host memory, or onto each rank's own GPU")

    def examine_log(self, log: Log) -> Judgement:
        if absent := log.search(*self.raises):
            headline = f"a checkpoint was saved from {absent.match[1]}, which is not here"
            return self.fail(headline, **log_fields(absent))
        full = next(filter(_full_in_load, log.fatal), None)
        if full is None:
            return NOT_IN_OUTPUT
        headline = "a GPU had no memory left for a checkpoint that was restored to it"
        return self.fail(headline, **log_fields(full))


def _gpu(recording: Recording) -> int | None:
    """The GPU that the rank set last, or else used first; what it loads onto tells nothing."""
    chosen = [device.index for device in recording.devices if device.how == "set"]
    used = [device.index for device in recording.devices if device.how == "use"]
    return chosen[-1] if chosen else used[0] if used else None


def _indices(load: Load) -> set[int]:
    return {int(gpu[1]) for device in load.devices if (gpu := re.fullmatch(r"cuda:(\d+)", device))}


def _full_in_load(raised: Raised) -> bool:
    in_load = any("serialization.py" in frame.file and "load" in frame.function for frame in raised.frames)
    return in_load and "out of memory" in raised.text

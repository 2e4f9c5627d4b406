import re
from collections.abc import Mapping, Sequence

from ddpdoctor.check import Check, Confidence, Finding, Judgement, Kind, Passed
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Line, Log, Raised, Reason, log_fields
from ddpdoctor.recorder.events.process import Device
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_line
from ddpdoctor.trace.gpus import Place, places, ranks_of_host, shared

_ROW = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d+)\s+C(?:\+G)?\s+\S.*?\s(?P<size>\d+)MiB\s+\|"
)

_OUT_OF_MEMORY = r"CUDA out of memory.{0,80}GPU (?P<gpu>\d+) has a total capacity .*"
_HOLDS = re.compile(r"Process (\d+) has (\d+(?:\.\d+)?) (bytes|[KMGT]iB) memory in use")
_SHORT_OF = re.compile(
    r"Tried to allocate (\d+(?:\.\d+)?) (\w+)\..{0,120} of which (\d+(?:\.\d+)?) (\w+) is free"
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_FULL = re.compile(
    r"CUDA out of memory\..{0,60}GPU (?P<gpu>\d+)(?:; | has a total capacity of )(?P<total>[\d.]+) (?P<unit>[KMGT]iB)"
    r"(?: total capacity; .{0,60}free; (?P<own>[\d.]+) (?P<unit_1>[KMGT]iB) reserved"
    r"|.{0,400}this process has (?P<own_1>[\d.]+) (?P<unit_2>[KMGT]iB) memory in use)"
)
"""As torch wrote it before 2.1, and since."""
_SMALL_PART, _LEAST_SHARE = 0.7, 0.6
"""Of a GPU's memory: what one rank has at most, and all of them together at least."""
_SPREAD = 4096
"""Ranks of one launch get process ids close to each other."""


class EveryRankOnGpu0(Check):
    """Every rank holds memory on GPU 0.

    What it finds:
        In a rehearsal, ranks that never selected a GPU and use the first, or that allocate on another rank's GPU. In
        nvidia-smi's table, several processes of the job on GPU 0: only there, or beside the GPU that each works on.

    Why it matters:
        Each process on a GPU needs a CUDA context of about 500 MiB there, besides its tensors, so GPU 0 runs out of
        memory first. If all ranks work on GPU 0, NCCL fails with 'Duplicate GPU detected', or the other GPUs are idle.

    Example:
        torch.load(path)              # restores tensors to the GPU they were saved from, which is GPU 0
        tensor.cuda()                 # before torch.cuda.set_device(local_rank)

    Fix:
        Set the device before anything else that uses CUDA, and load checkpoints to the CPU:
            torch.cuda.set_device(local_rank)
            torch.load(path, map_location="cpu")
    """

    code = "DD803"
    title = "each rank uses its own GPU only"
    explained_by = ("DD224", "DD406")
    log_words = ("MiB |",)

    def examine_run(self, trace: Trace) -> Judgement:
        by_rank = places(trace)
        crowded: dict[object, Finding] = {}
        for ranks in shared(by_rank):
            strayed = by_rank[ranks[1]]  # the first of them is at home there
            if strayed.device.index == 0 and strayed.device.visible >= ranks_of_host(by_rank, strayed.host):
                crowded.setdefault(strayed.device.at, self._all_on_gpu_0(ranks, strayed))
        strangers = by_line(
            (rank, device)
            for rank in by_rank
            if (device := _on_other_gpu(trace.recordings()[rank], by_rank, rank))
        )
        return [*crowded.values(), *map(self._on_gpu_of_others, strangers)] or Passed(
            f"{ranks_phrase(by_rank)} used different GPUs"
        )

    def _all_on_gpu_0(self, ranks: tuple[int, ...], strayed: Place) -> Finding:
        return self.fail(
            f"{ranks_phrase(ranks)} work on cuda:0, and {strayed.device.visible} GPUs are visible",
            ranks=ranks,
            where=strayed.device.at,
            about=Kind.GPU.of(0),
        )

    def _on_gpu_of_others(self, strangers: Mapping[int, Device]) -> Finding:
        first = next(iter(strangers.values()))
        return self.warn(
            f"{ranks_phrase(strangers)} put something on cuda:{first.index}, where another rank works",
            ranks=tuple(strangers),
            where=first.at,
            about=Kind.GPU.of(first.index),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_OUT_OF_MEMORY)
        if reason and (others := _ranks_beside(log, reason)):
            gpu = reason.match["gpu"]
            return self.fail(
                f"GPU {gpu} ran out of memory, and {plural(len(others), 'other process')} of the job "
                f"{'holds' if len(others) == 1 else 'hold'} memory there",
                confidence=Confidence.LIKELY,
                **log_fields(reason),
            )
        if crowded := _crowded(log):
            return self._all_on_one(crowded)
        gpus: dict[int, set[int]] = {}
        lines: dict[int, Line] = {}
        rows = [(line, row) for line in log.lines if (row := _ROW.search(line.text))]
        first = min((int(row["gpu"]) for _, row in rows), default=0)  # of those that the job sees
        for line, row in rows:
            gpus.setdefault(int(row["pid"]), set()).add(int(row["gpu"]))
            if int(row["gpu"]) == first:
                lines[int(row["pid"])] = line
        strangers = sorted(pid for pid, used in gpus.items() if first in used and len(used) > 1)
        if len(strangers) < 2:
            return NOT_IN_OUTPUT  # processes on GPU 0 alone may be jobs of their own
        return self.fail(
            f"{len(strangers)} processes that work on other GPUs hold memory on GPU {first} too",
            confidence=Confidence.LIKELY,
            **log_fields(*(lines[pid] for pid in strangers)),
        )

    def _all_on_one(self, crowded: Sequence[Raised]) -> Finding:
        gpu = next(match["gpu"] for raised in crowded if (match := _FULL.search(raised.text)))
        details = log_fields(*crowded)
        return self.fail(
            f"GPU {gpu} ran out of memory on {ranks_phrase(details['ranks'], plural(len(crowded), 'rank'))}, each of "
            "which had a part of it",
            why="The ranks most likely work on one GPU, since together they fill it: none of them set its device, "
            "or all set the same. Or each has its own GPU, where an earlier run still holds memory.",
            fix="torch.cuda.set_device(int(os.environ['LOCAL_RANK']))     # before anything else uses CUDA\n"
            "nvidia-smi     # when the job is over: a process that still holds memory is of an earlier run",
            confidence=Confidence.LIKELY,
            **details,
        )


def _crowded(log: Log) -> list[Raised]:
    """What several ranks of one host raised where a GPU was full that each of them had a small part of.

    Ranks to which the scheduler shows one GPU each call theirs GPU 0 too; those have it for themselves.
    """
    by_rank = {
        (raised.rank, None if raised.rank is not None else raised.line.position): raised
        for raised in log.fatal
        if (full := _FULL.search(raised.text)) and _share(full) < _SMALL_PART
    }
    gpus = {_FULL.search(raised.text)["gpu"] for raised in by_rank.values()}  # type: ignore[index]
    hosts = {log.host_of.get(rank, "") for rank, _ in by_rank if rank is not None}
    parts = sum(_share(full) for raised in by_rank.values() if (full := _FULL.search(raised.text)))
    fits = len(by_rank) > 1 and len(gpus) == 1 and len(hosts) < 2 and _LEAST_SHARE < parts <= 1.0
    return list(by_rank.values()) if fits else []


def _share(full: re.Match[str]) -> float:
    """The part of the GPU's memory that the process itself had."""
    total, unit = float(full["total"]), _UNITS[full["unit"]]
    itself = float(full["own"] or full["own_1"]) * _UNITS[full["unit_1"] or full["unit_2"]]
    return itself / (total * unit) if total else 1.0


def _ranks_beside(log: Log, reason: Reason) -> list[int]:
    """The processes of the same launch on that GPU, by the launcher's own lines, or by their numbers."""
    listed = {int(pid): float(held) * _UNITS[unit] for pid, held, unit in _HOLDS.findall(reason.match.string)}
    rank = reason.sources[0].rank
    itself = {end.pid for end in log.ended if end.rank == rank and rank is not None} & listed.keys()
    if listed and "this process has" not in reason.match.string:
        # In a container torch does not know its own number.
        itself = itself or {max(listed, key=lambda pid: listed[pid])}
    listed = {pid: held for pid, held in listed.items() if pid not in itself}
    known = {*log.stopped, *(end.pid for end in log.ended if end.pid)}
    of_launch = sorted(listed.keys() & known)
    close = sorted(listed) if len(listed) > 1 and max(listed) - min(listed) < _SPREAD else []
    beside = of_launch or close
    return beside if sum(listed.values()) >= _lacked(reason.match.string) else []


def _lacked(message: str) -> float:
    """The bytes that were missing: with less than that, the memory of others is not what the rank ran out of."""
    match = _SHORT_OF.search(message)
    if match is None:
        return 0.0
    asked, unit, free, unit_of_free = match.groups()
    return float(asked) * _UNITS.get(unit, 0) - float(free) * _UNITS.get(unit_of_free, 0)


def _on_other_gpu(recording: Recording, by_rank: Mapping[int, Place], rank: int) -> Device | None:
    """Its first use of a GPU that another rank of its host works on."""
    taken = {place.gpu for other, place in by_rank.items() if other != rank} - {by_rank[rank].gpu}
    used = (device for device in recording.devices if device.how == "use" and device.valid)
    return next((device for device in used if Place(by_rank[rank].host, device).gpu in taken), None)

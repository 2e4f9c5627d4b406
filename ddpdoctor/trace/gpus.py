"""Which GPUs the ranks of a rehearsal chose and used, by the host's own numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from ddpdoctor.check import NotMeasured
from ddpdoctor.recorder.events.process import Device
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import by_value
from ddpdoctor.trace.recording import Recording


@dataclass(frozen=True)
class Place:
    """The GPU that a rank works on."""

    host: str
    device: Device

    @property
    def gpu(self) -> tuple[str, str]:
        """What no two ranks may share."""
        return self.host, self.device.gpu or str(self.device.index)


def places(trace: Trace) -> dict[int, Place]:
    """The GPU of each rank of a rehearsal; NotMeasured where devices were real, which nobody noted, or no rank used
    one, or they talk through gloo, where ranks may share one."""
    recordings = trace.recordings()
    if not trace.rehearsal:
        raise NotMeasured("only a rehearsal notes which rank uses which GPU (--rehearse)")
    if any(event.backend == "gloo" for recording in recordings.values() for event in recording.groups):
        raise NotMeasured("the backend is gloo, whose ranks may share a device")
    homes = {rank: (recording, _home(recording)) for rank, recording in recordings.items()}
    places = {rank: Place(_host(recording), home) for rank, (recording, home) in homes.items() if home}
    if not places:
        raise NotMeasured("no rank used a GPU")
    return places


def shared(places: Mapping[int, Place]) -> list[tuple[int, ...]]:
    """The ranks of each GPU that several work on."""
    by_gpu = by_value({rank: place.gpu for rank, place in places.items()})
    return [ranks for ranks in by_gpu.values() if len(ranks) > 1]


def ranks_of_host(places: Mapping[int, Place], host: str) -> int:
    """How many ranks work on a host."""
    return sum(place.host == host for place in places.values())


def _home(recording: Recording) -> Device | None:
    """What its wrapper was given; else what it chose last; else what it used first."""
    valid = [device for device in recording.devices if device.valid]
    given = [wrapper.flags.get("device_ids") for wrapper in recording.wrappers]
    numbers = {ids[0] for ids in given if ids and isinstance(ids[0], int)}
    wrapped = [device for device in valid if device.index in numbers]
    chosen = [device for device in valid if device.how == "set"]
    return next(iter((*wrapped, *chosen[::-1], *valid)), None)


def _host(recording: Recording) -> str:
    """Simulated hosts have one name, and a number of their own."""
    numbers = (group.environ["GROUP_RANK"] for group in recording.groups if "GROUP_RANK" in group.environ)
    return f"{recording.host} {next(numbers, '')}"

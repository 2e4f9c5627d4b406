from collections.abc import Mapping

from ddpdoctor.check import Check, Finding, Judgement, Passed
from ddpdoctor.failures import Message
from ddpdoctor.recorder.events.training import Wrapper
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_line, of_model, on_each_rank, on_ranks
from ddpdoctor.trace.raised import by_messages, raised_as, raised_by

_FAILED = "DistributedDataParallel's constructor failed on {rank}: "
_ONE_GPU = "DistributedDataParallel(model, device_ids=[local_rank])"


class WrapDeviceMismatch(Check):
    """device_ids does not match the module's devices.

    What it finds:
        Errors of DDP's constructor about devices: device_ids for a module on the CPU, with several elements, as a
        bare number, or a module that is spread over device types. And device_ids that name another GPU than the one
        on which the module is, such as the global rank on the second node.

    Why it matters:
        The script ends at the wrap, or at the first forward, which moves the inputs to the GPU of device_ids, with a
        message that does not say which of the two is wrong.

    Example:
        The line was written for a GPU, and this machine has none:
            model = DistributedDataParallel(model, device_ids=[local_rank])

    Fix:
        Give device_ids only with a GPU:
            ids = [local_rank] if torch.cuda.is_available() else None
            model = DistributedDataParallel(model, device_ids=ids)
    """

    code = "DD224"
    title = "wrapped modules are on the device of device_ids"
    messages = (
        Message(
            r"DistributedDataParallel device_ids and output_device arguments only work with single-device",
            headline=_FAILED + "device_ids is given, and the module's parameters are on another device",
            why="device_ids tells DDP on which GPU the module is. Here its parameters are on the CPU, or on several "
            "devices.",
        ),
        Message(
            r"device_ids can only be None or contain a single element",
            headline=_FAILED + "device_ids names several devices",
            why="One process drives one GPU; DDP no longer accepts several.",
            fix=_ONE_GPU,
        ),
        Message(
            r"DistributedDataParallel's input module must be on the same type of devices",
            headline=_FAILED + "the module is partly on the CPU and partly on a GPU",
            why="A part of it was made, or replaced, after the rest had been moved.",
            fix="model = model.to(device)    # the whole of it, right before the wrap",
        ),
        Message(
            r"loaded with `device_map=.{1,20}` in any distributed mode",
            headline="{rank} prepared a model for a distributed job that device_map spreads over several GPUs",
            why="device_map='auto' puts parts of a model on several GPUs; each rank needs the whole model on its own.",
            fix="from_pretrained(name, device_map={'': local_rank})     # or without device_map",
        ),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        if finding := by_messages(self, trace) or self._given_a_number(trace):
            return finding
        elsewhere = by_line(on_each_rank(trace.wrapped(), _elsewhere))
        return [self._elsewhere(of_line) for of_line in elsewhere] or Passed(
            "every module is on the device that its wrapper expects"
        )

    def _given_a_number(self, trace: Trace) -> Finding | None:
        """A TypeError of the constructor itself: device_ids=0 has no length. Elsewhere it would be another's."""
        recordings = trace.recordings()
        raised = {
            rank: error
            for rank, error in raised_as(trace, r"TypeError: object of type '\w+' has no len\(\)").items()
            if any("has no len()" in (wrapper.failed or "") for wrapper in recordings[rank].wrappers)
        }
        details = raised_by(trace, raised) if raised else {"ranks": ()}
        headline = _FAILED.format(rank=ranks_phrase(details["ranks"])) + "device_ids is a number, not a list"
        why = "DDP asks for the length of device_ids."
        return self.fail(headline, why=why, fix=_ONE_GPU, **details) if raised else None

    def _elsewhere(self, elsewhere: Mapping[int, Wrapper]) -> Finding:
        rank, wrapper = next(iter(elsewhere.items()))
        return self.fail(
            f"the module of rank {rank} is on {', '.join(sorted(_places(wrapper)))}, and device_ids names "
            f"{_device(wrapper)}",
            why="The wrapper moves the inputs of every forward to the GPU of device_ids, and the weights are on "
            "another. The global rank is not a GPU index: on every node those begin with 0.",
            **on_ranks(
                elsewhere, lambda it: f"module on {', '.join(sorted(_places(it)))}, device_ids {_device(it)}"
            ),
            about=of_model(wrapper),
        )


def _elsewhere(recording: Recording) -> list[Wrapper]:
    """The wrappers whose module is not on the GPU of device_ids."""
    given = (wrapper for wrapper in recording.wrappers if _device(wrapper) is not None)
    return [wrapper for wrapper in given if {_device(wrapper)} != _places(wrapper)]


def _device(wrapper: Wrapper) -> str | None:
    """The GPU that device_ids names; None where it names none, or several."""
    ids = wrapper.flags.get("device_ids")
    if not wrapper.parameters or not isinstance(ids, list | tuple) or len(ids) != 1:
        return None
    named = str(ids[0]).removeprefix("cuda:")
    return f"cuda:{named}" if named.isdigit() else None


def _places(wrapper: Wrapper) -> set[str]:
    """The devices of its parameters."""
    return {parameter.device for parameter in wrapper.parameters}

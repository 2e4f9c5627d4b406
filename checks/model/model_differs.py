from collections.abc import Mapping

from ddpdoctor.check import Check, Finding, Judgement, Passed
from ddpdoctor.failures import Message
from ddpdoctor.recorder.events.training import Parameter, Wrapper
from ddpdoctor.text import by_state, listing, odd_ranks, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_key, of_model, on_each_rank, several
from ddpdoctor.trace.raised import raised_as, raised_by


class ModelDiffers(Check):
    """Ranks wrap models of different structure.

    What it finds:
        Wrapped modules whose parameters differ between ranks in number, name, order, shape, dtype or
        requires_grad; and DDP's own error, "expects same model across all ranks".

    Why it matters:
        DDP pairs parameters by position. Where numbers or shapes differ it stops in its constructor, with an error
        that names no parameter. Where only the order differs, it averages one parameter with another, silently.

    Example:
        The number of classes is counted in the rank's own files:
            model = Net(classes=len(set(labels_of_this_rank)))

    Fix:
        Build the model from values that are equal on all ranks; what is counted from data, count on rank 0
        and broadcast. Iterate over sorted(names), never over a set, where layers are made.
    """

    code = "DD214"
    title = "every rank wraps the same model"
    messages = (
        Message(
            r"DDP expects same model across all ranks(?!.{0,80}inconsistent 0 params)"
            r"|appears not to match (?:sizes|strides) of the same param in process 0",
            headline="DistributedDataParallel refused a model that is not the same on every rank",
        ),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        signatures = [
            (row, {rank: _signature(*wrapper.parameters) for rank, wrapper in row.items()})
            for row in _side_by_side(trace.recordings())
        ]
        differing = [(row, odd_ranks(of)) for row, of in signatures if len(set(of.values())) > 1]
        if differing:
            return [self._differ(row, odd) for row, odd in differing]
        if raised:
            return self.fail(
                f"DistributedDataParallel refuses the model of {ranks_phrase(raised)}: it is not the same on "
                "every rank",
                **raised_by(trace, raised, ranks=raised),
            )
        wrapped = several(trace.wrapped())
        count = sum(len(wrapper.parameters) for wrapper in next(iter(wrapped.values())).wrappers)
        return Passed(f"all ranks wrap the same {plural(count, 'parameter')}")

    def _differ(self, row: Mapping[int, Wrapper], odd: tuple[int, ...]) -> Finding:
        other = next(rank for rank in row if rank not in odd)
        first, reference = row[odd[0]], row[other]
        return self.fail(
            f"{first.module} on {ranks_phrase(odd)} differs from the one on rank {other}: "
            f"{_difference(first, reference)}",
            ranks=odd,
            where=first.at,
            evidence=by_state(row, lambda wrapper: _summary(wrapper, reference)),
            about=of_model(first),
        )


def _side_by_side(recordings: Mapping[int, Recording]) -> list[dict[int, Wrapper]]:
    """The wrappers of one position on the ranks of one process group."""
    wrappers = on_each_rank(recordings, lambda recording: recording.wrappers)
    rows = by_key(wrappers, lambda wrapper: (wrapper.index, wrapper.ranks))
    return [row for row in rows if len(row) > 1 and len({wrapper.module for wrapper in row.values()}) == 1]


def _signature(*parameters: Parameter) -> tuple[object, ...]:
    return tuple((each.key, each.shape, each.dtype, each.requires_grad) for each in parameters)


def _difference(wrapper: Wrapper, reference: Wrapper) -> str:
    mine, theirs = ({each.key: each for each in side.parameters} for side in (wrapper, reference))
    missing, added = ([key for key in a if key not in b] for a, b in ((theirs, mine), (mine, theirs)))
    changes = [f"{listing(keys)} {what}" for keys, what in ((missing, "missing"), (added, "added")) if keys]
    if changes:
        return ", ".join(changes)
    for key, parameter in mine.items():
        if _signature(parameter) != _signature(theirs[key]):
            return f"{key} is {_described(parameter)}, not {_described(theirs[key])}"
    return f"its {len(mine)} parameters are in a different order"


def _described(parameter: Parameter) -> str:
    shape = "x".join(map(str, parameter.shape)) or "a scalar"
    return f"{shape} {parameter.dtype}" + ("" if parameter.requires_grad else " without gradient")


def _summary(wrapper: Wrapper, reference: Wrapper) -> str:
    trained = sum(parameter.requires_grad for parameter in wrapper.parameters)
    text = f"{plural(len(wrapper.parameters), 'parameter')}, {trained} of them trained"
    same = _signature(*wrapper.parameters) == _signature(*reference.parameters)
    return text if same else f"{text}; {_difference(wrapper, reference)}"

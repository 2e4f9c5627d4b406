from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Finding, Judgement, Passed
from ddpdoctor.outliers import by_state, odd_ranks
from ddpdoctor.recorder.events.training import Parameter, Wrapper
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import of_model
from ddpdoctor.trace.raised import raised_as, raised_by

_WHY = (
    "DDP compares the number and the shapes of all ranks' parameters before it begins. The model was built "
    "from a value that differs, such as a count from the rank's own data, or failed to be built on one."
)
_FIX = "build the model from values that are equal on every rank, and broadcast what is counted from data"


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
    raises = (
        r"DDP expects same model across all ranks",
        r"appears not to match (sizes|strides) of the same param in process 0",
    )

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        wrapped = {
            rank: recording.wrappers for rank, recording in trace.recordings().items() if recording.wrappers
        }
        differing = []
        for row in _side_by_side(wrapped):
            shapes = {rank: tuple(map(_signature, member.parameters)) for rank, member in row.items()}
            if len(set(shapes.values())) > 1:
                differing.append(self._differ(row, odd_ranks(shapes)))
        if differing:
            return differing
        if raised:
            return self.fail(
                f"DistributedDataParallel refuses the model of {ranks_phrase(raised)}: it is not the same on "
                "every rank",
                why=_WHY,
                fix=_FIX,
                **raised_by(trace, raised, ranks=raised),
            )
        if not wrapped:
            raise NotMeasured("nothing was wrapped in DistributedDataParallel")
        if len(wrapped) < 2:
            raise NotMeasured("needs at least two ranks")
        count = sum(len(wrapper.parameters) for wrapper in next(iter(wrapped.values())))
        return Passed(f"all ranks wrap the same {plural(count, 'parameter')}")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(*self.raises)
        headline = "DistributedDataParallel refused a model that is not the same on every rank"
        return self.fail(headline, why=_WHY, fix=_FIX, **log_fields(reason)) if reason else NOT_IN_OUTPUT

    def _differ(self, row: Mapping[int, Wrapper], odd: tuple[int, ...]) -> Finding:
        other = next(rank for rank in row if rank not in odd)
        first, reference = row[odd[0]], row[other]
        return self.fail(
            f"{first.module} on {ranks_phrase(odd)} is not the one on rank {other}: {_difference(first, reference)}",
            why="DDP pairs the parameters of all ranks by their position. It stops where numbers or shapes "
            "differ, and averages unrelated parameters where only the order does.",
            fix="build the model from values that are equal on every rank; what is counted from data, broadcast:\n"
            "classes = torch.tensor(count); dist.broadcast(classes, src=0)",
            ranks=odd,
            where=first.at,
            evidence=by_state(row, lambda member: _summary(member, reference)),
            about=of_model(first),
        )


def _side_by_side(wrapped: Mapping[int, tuple[Wrapper, ...]]) -> list[dict[int, Wrapper]]:
    """The wrappers of one position on the ranks of one process group."""
    rows: dict[tuple[int, tuple[int, ...] | None], dict[int, Wrapper]] = {}
    for rank, wrappers in wrapped.items():
        for wrapper in wrappers:
            rows.setdefault((wrapper.index, wrapper.ranks), {})[rank] = wrapper
    return [
        row for row in rows.values() if len(row) > 1 and len({member.module for member in row.values()}) == 1
    ]


def _signature(parameter: Parameter) -> tuple[object, ...]:
    return parameter.key, parameter.shape, parameter.dtype, parameter.requires_grad


def _difference(wrapper: Wrapper, reference: Wrapper) -> str:
    mine, theirs = ({p.key: p for p in parameter.parameters} for parameter in (wrapper, reference))
    if missing := [key for key in theirs if key not in mine]:
        return f"{listing(missing)} missing" + (f", {_more(mine, theirs)}" if _more(mine, theirs) else "")
    if more := _more(mine, theirs):
        return more
    for key, parameter in mine.items():
        if _signature(parameter) != _signature(theirs[key]):
            return f"{key} is {_described(parameter)}, not {_described(theirs[key])}"
    return f"its {len(mine)} parameters stand in another order"


def _more(mine: Mapping[str, Parameter], theirs: Mapping[str, Parameter]) -> str:
    added = [key for key in mine if key not in theirs]
    return f"{listing(added)} added" if added else ""


def _described(parameter: Parameter) -> str:
    shape = "x".join(map(str, parameter.shape)) or "a scalar"
    return f"{shape} {parameter.dtype}" + ("" if parameter.requires_grad else " without gradient")


def _summary(wrapper: Wrapper, reference: Wrapper) -> str:
    same = tuple(map(_signature, wrapper.parameters)) == tuple(map(_signature, reference.parameters))
    trained = sum(p.requires_grad for p in wrapper.parameters)
    text = f"{plural(len(wrapper.parameters), 'parameter')}, {trained} of them trained"
    return text if same else f"{text}; {_difference(wrapper, reference)}"

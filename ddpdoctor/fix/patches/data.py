"""Which samples each rank reads."""

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.patches.epochs import find_epoch_loop, loops_over, tell_epoch
from ddpdoctor.fix.reading import LOADER, SAMPLER, argument, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Where


@patch("DD101", changes=("samples",))
def distributed_sampler(case: Case) -> str:
    """A DistributedSampler with its shuffling for each DataLoader that the finding is about; it is told the epoch."""
    told = False
    for place in case.loaders() or filter(None, [case.finding.where]):
        source, call = case.call_at(place, LOADER)
        told |= _divide_loader(case, source, call, place)
    return f"a DistributedSampler for the DataLoader{', with set_epoch' if told else ''}"


def _divide_loader(case: Case, source: Source, call: Node, place: Where) -> bool:
    """Divide one, and say whether its sampler is told the epoch."""
    if argument(call, 3, "sampler") or argument(call, 4, "batch_sampler"):
        raise CannotPatch("the DataLoader has a sampler already")
    statement = source.statement(call)
    if hasattr(statement, "body"):
        raise CannotPatch("the DataLoader is made in the head of a loop")
    dataset, shuffle = argument(call, 0, "dataset"), argument(call, 2, "shuffle")
    if dataset is None:
        raise CannotPatch("the dataset of the DataLoader is not among its arguments")
    name = _free(source, statement, "sampler")
    shuffled = source.code(shuffle) if shuffle is not None else "False"
    decided = shuffled not in ("True", "False")
    options = ", shuffle=False" if shuffled == "False" else ""
    made = f"{source.use(SAMPLER)}({_named(source, statement, dataset)}{options})"
    alone = source.may_lack_group()
    # What is made here without shuffling may be for an evaluation that one rank does.
    by_shuffle = [shuffled if dotted(shuffle) else f"({shuffled})"] if decided else []
    conditions = " and ".join([*by_shuffle, *([source.has_group()] if alone else [])])
    made = f"{made} if {conditions} else None" if conditions else made
    source.insert_before(statement, f"{name} = {made}")
    keyword = next((it for it in call.keywords if it.value is shuffle), None)
    if keyword is not None:
        in_one_process = alone and shuffled != "False"
        left = f", shuffle={' and '.join([*by_shuffle, f'{name} is None'])}" if in_one_process else ""
        source.replace(keyword, f"sampler={name}{left}")
    elif shuffle is not None:
        raise CannotPatch("shuffle is given by its position")
    else:
        source.add_argument(call, f"sampler={name}")
    loops = loops_over(case, place) if shuffle is not None else []
    in_epochs = [(inside, loop) for inside, loop in loops if find_epoch_loop(inside, loop)]
    for inside, loop in in_epochs:
        beside = inside is source and source.scope(loop) is source.scope(call)
        tell_epoch(inside, loop, name if beside else "", f"{name} is not None" if beside and decided else "")
    return bool(in_epochs)


def _named(source: Source, statement: Node, dataset: Node) -> str:
    """The dataset, which is given a name where it is made in the call."""
    if dotted(dataset):
        return source.code(dataset)
    name = _free(source, statement, "dataset")
    source.insert_before(statement, f"{name} = {source.code(dataset)}")
    source.replace(dataset, name)
    return name


def _free(source: Source, statement: Node, name: str) -> str:
    """A name that is not assigned here."""
    taken = source.program.flow.chains(source.scope(statement), source.file).all
    others = source.program.flow.chains(source.tree, source.file).all
    return f"train_{name}" if name in taken or name in others else name

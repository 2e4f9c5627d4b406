"""Gives a DataLoader a DistributedSampler, with its shuffling, and tells that the epoch."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, dotted, use
from ddpdoctor.fix.passes import find_epoch_loop, loops_over
from ddpdoctor.fix.patches.set_epoch import tell_epoch
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import assignments, has_group, may_lack_group
from ddpdoctor.model import Where

cures = ("DD101",)
_SAMPLER = "torch.utils.data.DistributedSampler"


def apply(case: Case) -> str:
    """Divide the dataset of each DataLoader that the finding is about."""
    told = False
    for place in case.loaders() or filter(None, [case.finding.where]):
        source, call = case.call_at(place, "DataLoader")
        told |= _divide(case, source, call, place)
    return f"a DistributedSampler for the DataLoader{', with set_epoch' if told else ''}"


def _divide(case: Case, source: Source, call: Node, place: Where) -> bool:
    """Divide one, and say whether its sampler is told the epoch."""
    if argument(call, "sampler", 3) or argument(call, "batch_sampler", 4):
        raise CannotPatch("the DataLoader has a sampler already")
    statement = source.statement(call)
    if not isinstance(statement, cst.SimpleStatementLine):
        raise CannotPatch("the DataLoader is made in the head of a loop")
    dataset, shuffle = argument(call, "dataset", 0), argument(call, "shuffle", 2)
    if dataset is None:
        raise CannotPatch("the dataset of the DataLoader is not among its arguments")
    name = _free(source, statement, "sampler")
    shuffled = source.code(shuffle.value) if shuffle is not None else "False"
    decided = shuffle is not None and shuffled not in ("True", "False")
    options = ", shuffle=False" if shuffled == "False" else ""
    made = f"{use(source, _SAMPLER)}({_named(source, statement, dataset)}{options})"
    alone = may_lack_group(source)
    # What is made here without shuffling may be for an evaluation that one rank does.
    by_shuffle = (
        [shuffled if dotted(shuffle.value) else f"({shuffled})"] if shuffle is not None and decided else []
    )
    conditions = " and ".join([*by_shuffle, *([has_group(source)] if alone else [])])
    source.insert_before(
        statement, f"{name} = {made} if {conditions} else None" if conditions else f"{name} = {made}"
    )
    if shuffle is not None and shuffle.keyword is not None:
        in_one_process = (
            " and ".join([*by_shuffle, f"{name} is None"]) if alone and shuffled != "False" else ""
        )
        source.replace(shuffle, f"sampler={name}" + (f", shuffle={in_one_process}" if in_one_process else ""))
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
    if dotted(dataset.value):
        return str(source.code(dataset.value))
    name = _free(source, statement, "dataset")
    source.insert_before(statement, f"{name} = {source.code(dataset.value)}")
    source.replace(dataset.value, name)
    return name


def _free(source: Source, statement: Node, name: str) -> str:
    """A name that is not assigned here."""
    taken = {dotted(target) for target, _ in assignments(source, statement)}
    return f"train_{name}" if name in taken else name

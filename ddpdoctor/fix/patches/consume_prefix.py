"""Takes the wrapper's prefix off the names of a checkpoint."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import dotted

cures = ("DD403",)
after = ("module_state",)
_CONSUME = "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present"


def apply(case: Case) -> str:
    """Call ``consume_prefix_in_state_dict_if_present`` before the state is loaded."""
    source, statement = case.source, case.statement
    state = case.call_at(case.finding.where, "load_state_dict")[1].args[0]
    name = source.code(state)
    if hasattr(statement, "body"):
        raise CannotPatch("the state is loaded in the head of a block")
    if not dotted(state):
        name = "state_dict"
        source.insert_before(statement, f"{name} = {source.code(state)}")
        source.replace(state, name)
    source.insert_before(statement, f'{use(source, _CONSUME)}({name}, "module.")')
    return "the prefix module. taken off"

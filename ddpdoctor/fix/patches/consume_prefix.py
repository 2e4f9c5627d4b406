"""Takes the wrapper's prefix off the names of a checkpoint."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import dotted, use

cures = ("DD403",)
after = ("module_state",)
_CONSUME = "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present"


def apply(case: Case) -> str:
    """Call ``consume_prefix_in_state_dict_if_present`` before the state is loaded."""
    source, statement = case.source, case.statement
    call = case.call("load_state_dict")
    state = call.args[0].value
    name = source.code(state)
    if not isinstance(statement, cst.SimpleStatementLine):
        raise CannotPatch("the state is loaded in the head of a block")
    if not dotted(state):
        name = "state_dict"
        source.insert_before(statement, f"{name} = {source.code(state)}")
        source.replace(state, name)
    source.insert_before(statement, f'{use(source, _CONSUME)}({name}, "module.")')
    return "the prefix module. taken off"

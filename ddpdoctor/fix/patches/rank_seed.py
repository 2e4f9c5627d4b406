"""Seeds each rank by its number, once the weights are equal."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import with_group
from ddpdoctor.fix.names import rank, use
from ddpdoctor.fix.wrappers import wraps


def apply(case: Case) -> str:
    """``torch.manual_seed`` behind the wrap."""
    source, call = wraps(case)[-1]
    statement = source.statement(call)
    seed = f"{use(source, 'torch.initial_seed')}() + {rank(source, statement, plain=True)}"
    line = f"{use(source, 'torch.manual_seed')}({seed})"
    # A wrap needs a process group, so that its branch has one.
    is_either = source.enclosing(call, cst.IfExp, cst.SimpleStatementLine) is not statement
    source.insert_after(statement, with_group(source, line) if is_either else line)
    return "random numbers of each rank behind the wrap"

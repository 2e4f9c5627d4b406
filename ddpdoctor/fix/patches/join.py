"""Lets ranks with fewer batches join in the collectives of the others."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.passes import loops_over
from ddpdoctor.fix.reading import calls_of_wrappers, has_group, may_lack_group

cures = ("DD106",)


def apply(case: Case) -> str:
    """Put the loop over the uneven batches under ``model.join()``."""
    joined = []
    for place in case.loaders() or filter(None, [case.finding.where]):
        for source, loop in loops_over(case, place):
            called = calls_of_wrappers(source, loop)
            if not called:
                raise CannotPatch("the loop over the uneven batches calls no wrapper by its name")
            name = source.code(called[0].func)
            nothing = f"{use(source, 'contextlib.nullcontext')}()" if may_lack_group(source) else ""
            alone = f" if {has_group(source)} else {nothing}" if nothing else ""
            source.indent_lines(loop, f"with {name}.join(){alone}:")
            joined.append(name)
    if not joined:
        raise CannotPatch("no loop trains on the uneven batches")
    return f"{joined[0]}.join() for uneven batches"

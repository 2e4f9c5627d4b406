"""Lets a parser accept the local rank in both spellings of torch.distributed.launch."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import calls

cures = ("DD007",)
_SPELLINGS = ("--local_rank", "--local-rank")


def apply(case: Case) -> str:
    """``add_argument("--local_rank", "--local-rank")``, both of which are ``args.local_rank``."""
    for source in case.scripts:
        for call in calls(source, "add_argument"):
            spelled = [arg for arg in call.args if getattr(arg, "value", None) in _SPELLINGS]
            missing = [it for it in _SPELLINGS if it not in [arg.value for arg in spelled]]
            if spelled and missing:
                code = source.code(spelled[-1])
                source.replace(spelled[-1], f"{code}, {code[0]}{missing[0]}{code[0]}")
                return f"{missing[0]} accepted, too"
    raise CannotPatch("no parser of the script takes the option in the other spelling")

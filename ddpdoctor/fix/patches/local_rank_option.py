"""Lets a parser accept the local rank in both spellings of torch.distributed.launch."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.source import Node, Source

cures = ("DD007",)
_SPELLINGS = ("--local_rank", "--local-rank")


def apply(case: Case) -> str:
    """``add_argument("--local_rank", "--local-rank")``, both of which are ``args.local_rank``."""
    for source in case.scripts:
        for call in source.all(cst.Call):
            spelled = _spellings(source, call)
            missing = [spelling for spelling in _SPELLINGS if spelling not in spelled.values()]
            if spelled and missing:
                last = list(spelled)[-1]
                quote = source.code(last)[0]
                source.replace(last, f"{source.code(last)}, {quote}{missing[0]}{quote}")
                return f"{missing[0]} accepted, too"
    raise CannotPatch("no parser of the script takes the option in the other spelling")


def _spellings(source: Source, call: Node) -> dict[Node, str]:
    """The spellings that a call of add_argument knows, by where they stand."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "add_argument":
        return {}
    strings = [
        arg.value for arg in call.args if arg.keyword is None and isinstance(arg.value, cst.SimpleString)
    ]
    return {node: source.code(node)[1:-1] for node in strings if source.code(node)[1:-1] in _SPELLINGS}

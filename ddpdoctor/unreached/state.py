"""What a resume leaves out of what was saved, and devices that are numbered by the global rank."""

import ast
from collections.abc import Iterator

from ddpdoctor.model import Evidence
from ddpdoctor.program import Expression, Origin, Source
from ddpdoctor.program.known import is_schedule
from ddpdoctor.unreached.lines import DDP, Sight, UnreachedLines, path_of

_OF_ALL_HOSTS = ("torch.distributed.get_rank", "os.environ['RANK']", "os.environ['SLURM_PROCID']")
"""What gives the number of a rank among those of all hosts."""


def left_out(lines: UnreachedLines) -> Iterator[Sight]:
    """States of optimizers, schedulers and scalers that are saved, and not read by a resume that goes on to count."""
    loads = [it for it in lines.calls(("torch.load",)) if lines.ways(it) or lines.is_unreached(it.where)]
    reads = _keys_read(lines) if loads else None
    for save in lines.calls(("torch.save",)) if reads is not None else ():
        value = save.argument(0, "obj")
        parts = {str(key): it for key, it in (value.contents if value else ()) if key is not None}
        known = [it for it in parts if it in reads]  # type: ignore[operator]
        counts = [it for it in known if not _is_state(parts[it]) and _is_number(parts[it])]
        if not counts or not any(map(_is_state, (parts[it] for it in known))):
            continue
        for key, part in parts.items():
            if key not in reads and _keeps_state(part):  # type: ignore[operator]
                read = ", ".join(known)
                evidence = (Evidence(f"saved here; read are {read}", where=part.where),)
                yield Sight(loads[0].where, {"key": repr(key)}, evidence)


def _is_state(value: Expression) -> bool:
    return value.method == "state_dict"


def _is_number(value: Expression) -> bool:
    """Whether it is counted by a loop, as an epoch or a step is, or made of such a number."""
    return any(it is None for it in value.values) or value.origins.known


def _keeps_state(value: Expression) -> bool:
    owner = value.owner if _is_state(value) else None
    return owner is not None and any(
        (it.startswith("torch.optim.") and "swa" not in it) or is_schedule(it) or it.endswith(".GradScaler")
        for it in owner.classes
    )


def _keys_read(lines: UnreachedLines) -> set[str] | None:
    """The constants by which the program reads dictionaries; None where it goes over one as a whole."""
    found: set[str] = set()
    for file in lines.program.files.values():
        for node in file.scopes:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                if not isinstance(node.slice, ast.Constant):
                    if any(it.origin is Origin.FILES for it in _sources(lines, file.path, node.value)):
                        return None
                else:
                    found.add(str(node.slice.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("get", "pop") and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
                elif node.func.attr in ("items", "values", "keys") and any(
                    it.origin is Origin.FILES for it in _sources(lines, file.path, node.func.value)
                ):
                    return None
    return found


def _sources(lines: UnreachedLines, path: str, node: ast.expr) -> tuple[Source, ...]:
    return Expression(lines.program, lines.program.files[path], node).origins.sources


def devices_by_rank(lines: UnreachedLines) -> Iterator[Sight]:
    """The unreached calls that choose a GPU by the global rank, the first of each place where that begins."""
    found: dict[object, list[tuple[Expression, Source]]] = {}
    for call, number in _devices(lines):
        if number is None or not lines.ways(call):
            continue
        sources = number.origins.sources
        ranks = [it for it in sources if it.origin is Origin.RANK]
        divided = any(isinstance(getattr(it.node, "op", None), ast.Mod) for it in number.made_of())
        if ranks and not divided and all(it.name in _OF_ALL_HOSTS for it in ranks):
            found.setdefault(ranks[0].path[:1], []).append((call, ranks[0]))
    for (call, rank), *others in found.values():
        more = (Evidence("chosen by it, too", where=it.where) for it, _ in others)
        yield Sight(call.where, {"name": rank.name}, (*path_of(rank, call.where), *more), certain=False)


def _devices(lines: UnreachedLines) -> Iterator[tuple[Expression, Expression | None]]:
    """The calls that place something, each with the device."""
    for call in lines.calls(("torch.cuda.set_device", "torch.device")):
        yield call, call.argument(1, "index") or call.argument(0, "device")
    for call in lines.calls((DDP,)):
        for _, it in getattr(call.argument(1, "device_ids"), "contents", ()):
            yield call, it
    for call in lines.calls_of_methods(("to", "cuda")):
        given = call.argument(0, "device")
        if given is not None and not any(_is_of_tensor(it) for it in given.made_of()):
            yield call, given


def _is_of_tensor(value: Expression) -> bool:
    """Whether it is the device of something, or one that was made elsewhere, where it is judged."""
    return value.is_attribute("device") or "torch.device" in value.called

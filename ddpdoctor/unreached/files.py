"""Files that every rank writes at one path, and files of one rank that others read without waiting for it."""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.program.known import LOCKS, is_pure, tells_of_several
from ddpdoctor.program.polls import poll_at
from ddpdoctor.program.ways import Way
from ddpdoctor.unreached.lines import Sight, UnreachedLines
from ddpdoctor.unreached.ranks import SIZE, ranks_where, who

_OBJECT = (None, "")
"""The path is the object whose method it is."""
CHECKPOINTS: Mapping[str, tuple[int | None, str]] = {
    "torch.save": (1, "f"),
    "torch.jit.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
}
"""What writes a checkpoint, with the argument that is its path."""
_OPENED: Mapping[str, tuple[int | None, str]] = {
    "builtins.open": (0, "file"),
    "io.open": (0, "file"),
    "gzip.open": (0, "filename"),
    "pathlib.Path.open": _OBJECT,
}
"""What reads or writes a file, as its mode says."""
FILES: Mapping[str, tuple[int | None, str]] = {
    **_OPENED,
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"),
    "numpy.savetxt": (0, "fname"),
    "shutil.rmtree": (0, "path"),
    "shutil.copyfile": (1, "dst"),
    "joblib.dump": (1, "filename"),
    "pandas.DataFrame.to_csv": (0, "path_or_buf"),
    "pathlib.Path.write_text": _OBJECT,
    "pathlib.Path.write_bytes": _OBJECT,
}
"""What writes or removes a file that is no checkpoint."""
_WRITES = {**CHECKPOINTS, **{name: at for name, at in FILES.items() if name != "shutil.rmtree"}}
_LOADS: Mapping[str, tuple[int | None, str]] = {
    "torch.load": (0, "f"),
    "torch.jit.load": (0, "f"),
    "safetensors.torch.load_file": (0, "filename"),
    "numpy.load": (0, "file"),
    "numpy.loadtxt": (0, "fname"),
    "joblib.load": (0, "filename"),
    "pandas.read_csv": (0, "filepath_or_buffer"),
    **_OPENED,
    "pathlib.Path.read_text": _OBJECT,
    "pathlib.Path.read_bytes": _OBJECT,
}
_FOR_ALL = frozenset(Origin) - {Origin.RANK, Origin.UNKNOWN}
"""What conditions of lines that every rank may reach are made of."""
_OF_PYTHON = ("time.", "os.", "shutil.", "logging.", "sys.")
"""Of whose functions none waits for other ranks."""


def checkpoints_written_by_all(lines: UnreachedLines) -> Iterator[Sight]:
    """The unreached calls by which every rank saves a checkpoint at one path."""
    return _written_by_all(lines, CHECKPOINTS)


def files_written_by_all(lines: UnreachedLines) -> Iterator[Sight]:
    """The same of other files."""
    return _written_by_all(lines, FILES)


def _written_by_all(lines: UnreachedLines, names: Mapping[str, tuple[int | None, str]]) -> Iterator[Sight]:
    """The unreached calls by which every rank writes the same path, where nothing keeps a rank from it."""
    if not lines.is_distributed:
        return
    found = ((call, path) for call in lines.calls(names) if (path := _path_of(call, names)) is not None)
    written = [(call, path) for call, path in found if path.only(Origin.ENVIRONMENT) and _writes(call)]
    turns = _taking_turns(lines) if written else set()
    for call, path in written:
        ways = (it for it in lines.ways(call) if it.complete and _is_for_all(lines, it, turns))
        if (way := next(ways, None)) is not None:
            calls = (Evidence("called on every rank", where=it) for it in way.lines[1:])
            tests = (Evidence(f"not on the rank: {it.test.text}", where=it.at) for it in way.conditions[:2])
            yield Sight(call.where, {"path": path.text, "what": call.function_text}, (*calls, *tests))


def _path_of(call: Expression, names: Mapping[str, tuple[int | None, str]]) -> Expression | None:
    row = next((names[it] for it in call.called if it in names), None)
    return None if row is None else call.owner if row is _OBJECT else call.argument(*row)


def _writes(call: Expression) -> bool:
    """Whether it empties a file, where it opens one."""
    return _mode(call, "w")[:1] in ("w", "x")


def _mode(call: Expression, fixed: str) -> str:
    """In which mode it opens a file; ``?`` where that is not written there, and ``fixed`` where it has no mode."""
    row = next((_OPENED[it] for it in call.called if it in _OPENED), None)
    if row is None:
        return fixed
    mode = call.argument(0 if row is _OBJECT else 1, "mode")
    if mode is None:
        return "r"
    return str(mode.node.value) if isinstance(mode.node, ast.Constant) else "?"


def _is_for_all(lines: UnreachedLines, way: Way, taking_turns: Collection[str | None]) -> bool:
    contexts = (it for where in way.lines for it in lines.program.contexts(where)[0])
    if any(it.function in taking_turns for it in way.lines):
        return False
    asks = any(Origin.FILES in it.test.origins.kinds for it in way.conditions)
    if asks and _take_turns(lines, way):  # who comes later finds the file
        return False
    return all(map(_is_equal, way.conditions)) and all(map(_lets_all_in, contexts))


def _taking_turns(lines: UnreachedLines) -> set[str | None]:
    """The functions that take a lock, or try again and again for what may be one: a folder that only one can make."""
    nodes = ((file, it) for file in lines.program.files.values() for it in file.scopes)
    loops = (file.where(it.body[0]) for file, it in nodes if isinstance(it, ast.While))
    polls = (it for it in loops if (poll := poll_at(it, lines.program)) and poll.until is None)
    return {it.function for it in (*(call.where for call in lines.calls(LOCKS)), *polls)}


def _take_turns(lines: UnreachedLines, way: Way) -> bool:
    """Whether a barrier that only some ranks come to stands in front of a line of a way."""
    program, places = lines.program, [it.where for it in lines.collectives]
    ahead = (it for it in places if any(program.is_ahead(it, line) for line in way.lines))
    return any(it.by_rank for where in ahead for it in program.conditions(where))


def _is_equal(condition: Condition) -> bool:
    """Whether a condition keeps no rank from a line, in a job of several ranks."""
    origins = condition.test.origins
    if any(tells_of_several(it.name) for it in origins.sources):
        return ranks_where(condition) == frozenset(range(SIZE))
    return origins.kinds <= _FOR_ALL


def _lets_all_in(context: Expression) -> bool:
    """Whether a context manager is none of those by which ranks take turns."""
    return bool(context.called) and all(
        it.startswith(("torch.", "contextlib.suppress", "contextlib.nullcontext")) or it in _OPENED
        for it in context.called
    )


# A file of one rank that others read.


def read_at_once(lines: UnreachedLines) -> Iterator[Sight]:
    """The unreached reads of what another rank writes in the same function, or in those that it calls, before it."""
    calls = [it for it in lines.calls(_WRITES) if _writes(it)]
    writes = [(it, way) for it in calls for way in lines.ways(it)]
    writes = [(it, way) for it, way in writes if any(condition.by_rank for condition in way.conditions)]
    loads = lines.calls(_LOADS) if writes else ()
    for read in (it for it in loads if _mode(it, "r")[:1] == "r"):
        for way in lines.ways(read):
            for write, written in writes:
                if (race := _race(lines, (write, written), (read, way))) is not None:
                    yield race


def _race(lines: UnreachedLines, write: tuple[Expression, Way], read: tuple[Expression, Way]) -> Sight | None:
    guard = next(it for it in write[1].conditions if it.by_rank)
    writers = ranks_where(guard)
    if writers is None or any(it.by_rank for it in read[1].conditions) or not _same_path(write, read):
        return None
    for depth, first in enumerate(write[1].lines):
        for inner, last in enumerate(read[1].lines):
            if lines.program.is_ahead(first, last):
                below = (*write[1].lines[:depth], *read[1].lines[:inner])
                if any(_may_wait(lines, it.file, None) for it in below if _has_wait(lines, it)):
                    return None
                waits = _may_wait(lines, first.file, range((first.line or 0) + 1, last.line or 0), last)
                if waits:
                    return None
                path = _path_of(read[0], _LOADS)
                words = {"path": path.text if path else "a file", "ranks": who(writers).removeprefix("only ")}
                evidence = Evidence(f"written where {guard.test.text}", where=write[0].where)
                return Sight(read[0].where, words, (evidence,))
            if first.function == last.function and first.file == last.file:
                return None
    return None


def _has_wait(lines: UnreachedLines, where: Where) -> bool:
    """Whether there is a collective in the function of a line."""
    here = {(it.file.path, it.where.function) for it in lines.collectives}
    return (where.file, where.function) in here


def _may_wait(lines: UnreachedLines, path: str, between: range | None, home: Where | None = None) -> bool:
    """Whether something between two lines of a function may wait for other ranks."""
    file = lines.program.files.get(path)
    if between is None or file is None or home is None:
        return True
    nodes = {it.node for it in lines.collectives}
    scope = file.function_at(home.line)
    for call in file.calls:
        if call.lineno not in between or file.function_at(call.lineno) is not scope:
            continue
        inside = lines.program.loops.called_in(file, call)
        if call in nodes or any(part in nodes for it in inside for part in ast.walk(it)):
            return True
        called = Expression(lines.program, file, call).called
        own = {getattr(it, "name", "") for it in inside}
        if not called or not all(is_pure(it) or it.startswith(_OF_PYTHON) or it in own for it in called):
            return True
    return False


def _same_path(write: tuple[Expression, Way], read: tuple[Expression, Way]) -> bool:
    written = _path_of(replace(write[0], context=write[1].context), _WRITES)
    loaded = _path_of(replace(read[0], context=read[1].context), _LOADS)
    return written is not None and loaded is not None and written.identity == loaded.identity != 0

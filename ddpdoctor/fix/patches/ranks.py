"""What only some ranks do, or each for itself: done by all of them, or by one."""

import ast
import textwrap

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import DIST, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Kind
from ddpdoctor.program import Origin
from ddpdoctor.program.files import FUNCTIONS
from ddpdoctor.text import shorten
from ddpdoctor.trace.files import is_of_training

_LONGEST = 40
_OF_WORKERS = ("__getitem__", "__getitems__", "__iter__")
"""Methods of datasets that DataLoader workers call."""
_GIVEN_TO_WORKERS = ("collate_fn", "worker_init_fn")
_COPIES = tuple(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move"))
_OF_RANK_0 = ("torch.save", *_COPIES, "os.rename", "os.replace")
"""What is done with files that ranks made in training, which are on the disk of rank 0."""
_HANDLERS = ("RotatingFileHandler", "TimedRotatingFileHandler")
_LOGS = ("logging.FileHandler", "logging.basicConfig", *(f"logging.handlers.{name}" for name in _HANDLERS))


@patch("DD219", "DD225", "DD226", "DD303", "DD405", after=("call_module",))
def out_of_rank_guard(case: Case) -> str:
    """Move the statement at the line out of its condition by rank; or the call of its function, where that has one."""
    source, statement = case.source, _statement(case)
    if source.rank_guard(statement) is not None:
        move_out(source, statement)
        return f"{shorten(source.code(statement), _LONGEST)} on every rank"
    function = source.scope(statement)
    for there, call in source.callers(function):
        guard = there.rank_guard(call)
        if guard is None:
            continue
        called = there.statement(call)
        if isinstance(called, ast.Expr) and called.value is call:
            move_out(there, called)
        else:
            name = f"{function.name}_result"
            there.insert_before(guard, f"{name} = {there.code(call)}")
            there.replace(call, name)
        return f"{function.name} called on every rank"
    raise CannotPatch("it is under no condition by rank in this file")


def _statement(case: Case) -> Node:
    """The statement at the line; where that is the condition itself, the only one under it, or the step."""
    source, statement = case.source, case.statement
    if not isinstance(statement, ast.If) or statement.lineno != case.line:
        return statement
    steps = [inner for inner in statement.body if source.calls("step", within=inner)]
    return statement.body[0] if len(statement.body) == 1 else next(iter(steps), statement)


def move_out(source: Source, statement: Node) -> None:
    """Move a statement in front of the condition by rank that it is under, or behind it."""
    guard = source.plain_if(source.rank_guard(statement))
    is_both = isinstance(guard.test, ast.BoolOp) and isinstance(guard.test.op, ast.And)
    others = [it for it in guard.test.values if not source.decides_by_rank(it)] if is_both else []
    if statement not in guard.body or not source.begins_line(statement):
        raise CannotPatch(f"line {statement.lineno} is under more than the condition by rank")
    code, condition = source.reindented(statement, ""), " and ".join(map(source.code, others))
    if others and len(guard.body) == 1:
        source.replace(guard.test, condition)
        return
    if others:
        code = f"if {condition}:\n{textwrap.indent(code, source.indent)}"
    if guard.body[0] is statement:
        source.insert_before(guard, code)
    else:
        source.insert_after(guard, code)
    if len(guard.body) == 1:
        source.delete_lines(guard)
    else:
        source.delete(statement)


@patch("DD303")
def call_module(case: Case) -> str:
    """On one rank, call ``model.module``, whose forward sends nothing, or pass it to the function that calls it."""
    source, statement = case.source, case.statement
    called = [(source, call.func) for call in source.calls_of_wrappers(statement)]
    if source.rank_guard(statement) is None:
        called = [
            (there, given)
            for _, name in called
            for there, call, given in source.passed(name)
            if there.rank_guard(call) and dotted(given) and there.is_wrapped(given)
        ]
    if not called:
        raise CannotPatch("the line is not one in which a single rank calls a wrapper")
    for there, name in called:
        there.replace(name, there.module_of(there.code(name)))
    return f"{called[0][0].code(called[0][1])}.module called on one rank"


@patch("DD402")
def write_on_rank_0(case: Case) -> str:
    """Put the statement that writes under rank 0, with a barrier behind it."""
    source = case.source
    statement = written(source, case.statement)
    return under(source, statement, source.is_rank_0(statement), "rank 0")


def under(source: Source, statement: Node, condition: str, rank: str) -> str:
    """Put a statement under a condition, with a barrier behind it if all ranks come there and none is there.

    A condition by a rank under which several ranks write already is replaced.
    """
    guard = source.rank_guard(statement)
    if guard is not None and isinstance(guard.test, ast.Compare):
        source.replace(guard.test, condition)
        return f"written on {rank}"
    source.under_condition(statement, condition)
    following = [it for it in source.behind(statement)[:1] if isinstance(it, ast.Expr)]
    if not source.all_come_to(statement) or any(
        source.calls(f"{DIST}.barrier", within=it) for it in following
    ):
        return f"written on {rank}"
    source.insert_after(statement, source.barrier())
    return f"written on {rank}, with a barrier behind it"


def written(source: Source, statement: Node) -> Node:
    """The statement that uses a file, with the one that opens the file and the condition that asks whether it is there;
    CannotPatch where it is no statement of its own."""
    function = source.scope(statement)
    if isinstance(statement, FUNCTIONS):
        raise CannotPatch("the line is no statement that uses a file")
    if isinstance(function, FUNCTIONS) and (function.name in _OF_WORKERS or _is_given(source, function)):
        raise CannotPatch("DataLoader workers write it, which are no ranks and cannot wait for each other")
    for around in source.within_function(statement):
        opens = isinstance(around, ast.With) and source.calls("open", within=around.items[0].context_expr)
        asks = isinstance(around, ast.If) and Origin.FILES in source.expression(around.test).origins.kinds
        if (opens or asks) and not source.calls(f"{DIST}.barrier", within=around):
            statement = around
    return statement


def _is_given(source: Source, function: Node) -> bool:
    """Whether DataLoaders are given a function that their workers call."""
    keywords = (it for call in source.file.calls for it in call.keywords)
    return any(it.arg in _GIVEN_TO_WORKERS and dotted(it.value) == function.name for it in keywords)


@patch("DD401")
def barrier_before(case: Case) -> str:
    """A barrier before the line that reads a file, until it is written."""
    source = case.source
    statement = written(source, case.statement)
    if not source.all_come_to(statement):
        raise CannotPatch("it is read on some ranks only")
    source.insert_before(statement, source.barrier())
    return "a barrier before it is read"


@patch("DD606")
def log_on_rank_0(case: Case) -> str:
    """Put the statement that opens a log file under rank 0."""
    source, statement = case.source, case.statement
    if not isinstance(statement, ast.Expr):
        raise CannotPatch("the log file is opened where others need its value")
    source.under_condition(statement, source.is_rank_0(statement))
    return "the log file on rank 0 only"


@patch("DD020", after=("exist_ok",))
def write_on_each_host(case: Case) -> str:
    """Put the statement that writes under local rank 0, since hosts may have disks of their own, with a barrier behind
    it; results of training under rank 0."""
    source = case.source
    if source.calls(*_LOGS, within=case.statement):
        return log_on_rank_0.apply(case)
    statement = written(source, case.statement)
    paths = [subject.name for subject in case.finding.about if subject.kind is Kind.PATH]
    results = paths and all(is_of_training(case.trace.recorded, path) for path in paths)
    is_cache = isinstance(statement, ast.If)
    if results or (not is_cache and source.calls(*_OF_RANK_0, within=statement)):
        return under(source, statement, source.is_rank_0(statement), "rank 0")
    return under(source, statement, source.is_local_rank_0(statement), "one rank of each host")

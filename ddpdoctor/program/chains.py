"""Which definitions of a variable reach each place that reads it, within one function or module.

The use-def chains of beniget, for attributes (``self.loss``) and elements by constants (``state["loss"]``) as well,
and with calls that may change what they are given (``dist.all_reduce(loss)``) as definitions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from ddpdoctor.program.files import FUNCTIONS, Function, Loop, Scope, dotted, held_by, name_called
from ddpdoctor.program.known import CHANGES, REDUCING


class How(Enum):
    """How a definition gives a variable its value."""

    ASSIGNED = "is assigned"
    CHANGED = "is changed by an operator, or at an element"
    ITERATED = "is the element of a loop"
    PARAMETER = "is given by the caller"
    GIVEN = "is given to a call, which may change it"
    IMPORTED = "is imported"
    DEFINED = "is a function or a class"
    ELSEWHERE = "is set elsewhere: an attribute that the function has not set"
    UNKNOWN = "is an exception, or what a pattern matches"


@dataclass(eq=False)
class Definition:
    """One way in which a variable gets its value."""

    key: str
    node: ast.AST
    how: How
    value: ast.expr | None = None
    """What is assigned, iterated or added; the call where it is given to one."""
    path: tuple[int, ...] = ()
    """The positions at which it is taken out of a tuple."""
    before: set[Definition] = field(default_factory=set)
    """The definitions that it changes."""


Reaching: TypeAlias = dict[str, frozenset[Definition]]


class Chains:
    """The definitions of one scope (a function, a lambda, a class or a module), and those that reach each use;
    ``set_by`` are the attributes that a call sets in the object whose method it is."""

    def __init__(self, scope: Scope, set_by: Callable[[ast.Call], Collection[str]]) -> None:
        self.scope = scope
        self._set_by = set_by
        self.uses: dict[ast.AST, frozenset[Definition]] = {}
        """By the expression that reads."""
        self.all: dict[str, dict[Definition, None]] = {}
        """All definitions of a name."""
        self.not_own: set[str] = set()
        """Names that are declared global or nonlocal."""
        self.end: Reaching | None = None
        """What holds where the function returns."""
        self._made: dict[tuple[ast.AST, str], Definition] = {}
        self._leaves: list[tuple[list[Reaching], list[Reaching]]] = []
        """Of the loops around: what holds at each break, and at each continue."""
        self._returned: list[Reaching] = []
        self._each: set[str] = set()
        """The containers of which the loop around sets each element, or gives it to a collective."""
        self._elsewhere: dict[str, frozenset[Definition]] = {}
        start: Reaching = {}
        if isinstance(scope, (*FUNCTIONS, ast.Lambda)):
            self._parameters(scope, start)
        body: list[ast.stmt] = [ast.Return(scope.body)] if isinstance(scope, ast.Lambda) else scope.body
        last = self._block(body, start)
        ends = [*self._returned, *([last] if last is not None else [])]
        self.end = self._merged(ends) if ends else None

    def _parameters(self, scope: Function | ast.Lambda, state: Reaching) -> None:
        given = scope.args
        extra = [it for it in (given.vararg, given.kwarg) if it]
        for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra):
            self._define(state, argument.arg, argument, How.PARAMETER)

    def _define(
        self,
        state: Reaching,
        key: str,
        node: ast.AST,
        how: How,
        value: ast.expr | None = None,
        path: tuple[int, ...] = (),
        *,
        keeps: bool = False,
    ) -> None:
        definition = self._made.get((node, key))
        if definition is None:
            definition = self._made[node, key] = Definition(key, node, how, value, path)
            self.all.setdefault(key, {})[definition] = None
        if keeps:
            definition.before |= state.get(key, frozenset()) or self._set_elsewhere(key)
        else:
            for other in [it for it in state if it.startswith((f"{key}.", f"{key}["))]:
                del state[other]
        state[key] = frozenset((definition,))

    def _set_elsewhere(self, key: str) -> frozenset[Definition]:
        if key not in self._elsewhere:
            self._elsewhere[key] = frozenset((Definition(key, self.scope, How.ELSEWHERE),))
        return self._elsewhere[key]

    def definition(self, target: ast.AST) -> Definition | None:
        """What a target of an assignment defines, or changes an element of."""
        whole = dotted(target.value) if isinstance(target, ast.Subscript) else dotted(target)
        return self._made.get((target, whole or ""))

    def element(self, target: ast.AST) -> Definition | None:
        """What an assignment to an element by a constant defines."""
        return self._made.get((target, dotted(target) or ""))

    def _merged(self, states: Iterable[Reaching]) -> Reaching:
        first, *others = states
        if not others:
            return dict(first)
        keys = dict.fromkeys(key for state in (first, *others) for key in state)
        return {key: frozenset().union(*(self._now(key, it) for it in (first, *others))) for key in keys}

    def _now(self, key: str, state: Reaching) -> frozenset[Definition]:
        is_name = "." not in key and "[" not in key  # a name that is not set is not bound
        return state.get(key) or (frozenset() if is_name else self._set_elsewhere(key))

    # Statements. Each gives what holds behind it; None where nothing goes on.

    def _block(self, body: Iterable[ast.stmt], state: Reaching | None) -> Reaching | None:
        for statement in body:
            if state is None:
                break
            state = self._statement(statement, state)
        return state

    def _statement(self, node: ast.stmt, state: Reaching) -> Reaching | None:
        if (handle := getattr(self, f"_{type(node).__name__.lower()}", None)) is not None:
            result: Reaching | None = handle(node, state)
            return result
        self._read(node, state)
        return state

    def _assign(self, node: ast.Assign, state: Reaching) -> Reaching:
        self._read(node.value, state)
        for target in node.targets:
            self._bind(target, How.ASSIGNED, node.value, state)
        return state

    def _annassign(self, node: ast.AnnAssign, state: Reaching) -> Reaching:
        self._read(node.value, state)
        if node.value is not None:
            self._bind(node.target, How.ASSIGNED, node.value, state)
        return state

    def _augassign(self, node: ast.AugAssign, state: Reaching) -> Reaching:
        self._read(node.value, state)
        self._bind(node.target, How.CHANGED, node.value, state)
        return state

    def _bind(
        self, target: ast.expr, how: How, value: ast.expr, state: Reaching, path: tuple[int, ...] = ()
    ) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for position, part in enumerate(target.elts):
                self._bind(part, how, value, state, (*path, position))
            return
        if isinstance(target, ast.Starred):
            self._bind(target.value, how, value, state, path[:-1])
            return
        for inside in ast.iter_child_nodes(target):
            self._read(inside, state)
        if key := dotted(target):
            keeps = how is How.CHANGED
            if keeps:
                self.uses[target] = state.get(key, frozenset()) or self._set_elsewhere(key)
            self._define(state, key, target, how, value, path, keeps=keeps)
        if isinstance(target, ast.Subscript) and (key := dotted(target.value)):
            each = how is How.ASSIGNED and dotted(self._gone_over(target.slice, state)) == key
            self._define(state, key, target, How.CHANGED, value, keeps=not each)
            if each:
                self._each.add(key)

    def _if(self, node: ast.If, state: Reaching) -> Reaching | None:
        self._read(node.test, state)
        ends = [self._block(node.body, dict(state)), self._block(node.orelse, dict(state))]
        return self._either(ends)

    def _either(self, ends: Iterable[Reaching | None]) -> Reaching | None:
        going_on = [state for state in ends if state is not None]
        return self._merged(going_on) if going_on else None

    def _while(self, node: ast.While, state: Reaching) -> Reaching | None:
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return self._loop(node, state, lambda now: self._read(node.test, now), endless=endless)

    def _for(self, node: ast.For | ast.AsyncFor, state: Reaching) -> Reaching | None:
        self._read(node.iter, state)
        around, self._each = self._each, set()
        end = self._loop(node, state, lambda now: self._bind(node.target, How.ITERATED, node.iter, now))
        for key in self._each & set(end or ()):  # where there is no turn there is no element
            end[key] = end[key] - state.get(key, frozenset()) or end[key]  # type: ignore[index]
            for other in [it for it in end or () if it.startswith(f"{key}[")]:
                del end[other]  # type: ignore[union-attr]
        self._each |= around
        return end

    _asyncfor = _for

    def _loop(
        self, node: Loop, state: Reaching, begin: Callable[[Reaching], None], *, endless: bool = False
    ) -> Reaching | None:
        heads: list[Reaching] = [dict(state)]
        out: list[Reaching] = []
        for _ in range(2):  # what one turn sets, the next one reads
            now = self._merged(heads)
            begin(now)
            self._leaves.append(([], []))
            end = self._block(node.body, dict(now))
            breaks, continues = self._leaves.pop()
            heads += [*continues, *([end] if end is not None else [])]
            out = breaks
        if not endless:
            now = self._merged(heads)
            if isinstance(node, ast.While):
                begin(now)
            if (end := self._block(node.orelse, now)) is not None:
                out = [*out, end]
        return self._merged(out) if out else None

    def _break(self, _: ast.Break, state: Reaching) -> None:
        self._leaves[-1][0].append(state)

    def _continue(self, _: ast.Continue, state: Reaching) -> None:
        self._leaves[-1][1].append(state)

    def _return(self, node: ast.Return, state: Reaching) -> None:
        self._read(node.value, state)
        self._returned.append(state)

    def _raise(self, node: ast.Raise, state: Reaching) -> None:
        self._read(node, state)

    def _with(self, node: ast.With | ast.AsyncWith, state: Reaching) -> Reaching | None:
        for item in node.items:
            self._read(item.context_expr, state)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, How.ASSIGNED, item.context_expr, state)
        return self._block(node.body, state)

    _asyncwith = _with

    def _try(self, node: ast.Try, state: Reaching) -> Reaching | None:
        before = dict(state)
        tried = self._block(node.body, state)
        failed = self._merged([before, tried]) if tried is not None else before
        ends = [self._block(node.orelse, dict(tried)) if tried is not None else None]
        for handler in node.handlers:
            now = dict(failed)
            if handler.name:
                self._define(now, handler.name, handler, How.UNKNOWN)
            ends.append(self._block(handler.body, now))
        end = self._either(ends)
        if not node.finalbody:
            return end
        after = self._block(node.finalbody, dict(failed) if end is None else end)
        return after if end is not None else None

    _trystar = _try

    def _match(self, node: ast.Match, state: Reaching) -> Reaching | None:
        self._read(node.subject, state)
        ends: list[Reaching | None] = [dict(state)]
        for case in node.cases:
            now = dict(state)
            for part in ast.walk(case.pattern):
                if name := getattr(part, "name", None):
                    self._define(now, name, part, How.UNKNOWN)
            self._read(case.guard, now)
            ends.append(self._block(case.body, now))
        return self._either(ends)

    def _functiondef(self, node: Function | ast.ClassDef, state: Reaching) -> Reaching:
        for part in (*node.decorator_list, *getattr(node, "bases", ())):
            self._read(part, state)
        if not isinstance(node, ast.ClassDef):
            for part in (*node.args.defaults, *(it for it in node.args.kw_defaults if it)):
                self._read(part, state)
        self._define(state, node.name, node, How.DEFINED)
        return state

    _asyncfunctiondef = _classdef = _functiondef

    def _import(self, node: ast.Import | ast.ImportFrom, state: Reaching) -> Reaching:
        for alias in node.names:
            own = alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0]
            self._define(state, alias.asname or own, alias, How.IMPORTED)
        return state

    _importfrom = _import

    def _global(self, node: ast.Global | ast.Nonlocal, state: Reaching) -> Reaching:
        self.not_own.update(node.names)
        return state

    _nonlocal = _global

    # Expressions.

    def _read(self, node: ast.AST | None, state: Reaching) -> None:
        """Notes what reaches each variable in an expression, in the order in which Python evaluates them."""
        if node is None or isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for generator in node.generators:
                self._read(generator.iter, state)
                self._bind(generator.target, How.ITERATED, generator.iter, state)
                for test in generator.ifs:
                    self._read(test, state)
        if isinstance(node, ast.NamedExpr):
            self._read(node.value, state)
            self._bind(node.target, How.ASSIGNED, node.value, state)
            return
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.comprehension):
                self._read(child, state)
        if (key := dotted(node)) and isinstance(getattr(node, "ctx", None), ast.Load):
            self.uses[node] = self.uses.get(node, frozenset()) | state.get(key, frozenset())
        if isinstance(node, ast.Call):
            self._given(node, state)

    def _given(self, call: ast.Call, state: Reaching) -> None:
        """A call may change its arguments, and the object whose method it is."""
        if isinstance(call.func, ast.Attribute):
            self._given_one(call.func.value, call, state, is_owner=True)
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            for part in given.elts if isinstance(given, ast.List | ast.Tuple) else (given,):
                self._given_of_each(part, call, state)
                self._given_one(part, call, state, is_owner=False)

    def _given_one(self, part: ast.expr, call: ast.Call, state: Reaching, *, is_owner: bool) -> None:
        if is_owner and not dotted(part) and getattr(call.func, "attr", "") in CHANGES:
            part = held_by(part)
        key = dotted(part)
        if not key:
            return
        if is_owner:
            for name in self._set_by(call):
                if (known := state.get(f"{key}.{name}")) is not None:
                    state[f"{key}.{name}"] = known | self._set_elsewhere(f"{key}.{name}")
        known = state.get(key, frozenset())
        fixed = all(it.how in (How.IMPORTED, How.DEFINED) for it in known)
        puts_in = is_owner and not known and getattr(call.func, "attr", "") in CHANGES
        if puts_in or not (fixed and (known or is_owner)):
            self._define(state, key, part, How.GIVEN, call, keeps=True)

    def _given_of_each(self, part: ast.expr, call: ast.Call, state: Reaching) -> None:
        """A collective given an element, by a variable, changes a container's, or each variable a loop goes over."""
        over = self._gone_over(part, state) if name_called(call) in REDUCING else None
        for one in over.elts if isinstance(over, ast.List | ast.Tuple) else (over,):
            if (key := dotted(one)) is not None:
                self._define(state, key, part, How.GIVEN, call, keeps=True)
                self._each.add(key)
                for other in [it for it in state if it.startswith(f"{key}[")]:
                    del state[other]

    @staticmethod
    def _gone_over(part: ast.expr, state: Reaching) -> ast.expr | None:
        """That of which an expression is some element: ``held[key]``, or what a loop takes from ``held.values()``."""
        if isinstance(part, ast.Subscript):
            return None if isinstance(part.slice, ast.Constant) else part.value
        reaching = [*state.get(dotted(part) or "", ())]
        for it in reaching:  # which grows
            reaching += [before for before in it.before if it.how is How.GIVEN and before not in reaching]
        over = {it.value if it.how is How.ITERATED else None for it in reaching if it.how is not How.GIVEN}
        one = over.pop() if len(over) == 1 else None
        return one.func.value if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) else one

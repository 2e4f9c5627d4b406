"""Which object a value is: where it was made, what it names, and of which class it is."""

import ast
import builtins
from collections.abc import Iterator

from ddpdoctor.program import known
from ddpdoctor.program.calls import PARTIAL
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import FUNCTIONS, File, Function, dotted, is_static
from ddpdoctor.program.index import Entity, Point, Referent, answered_once, scope_of
from ddpdoctor.program.members import Members

MOST_POINTS = 6000
"""Points that are looked at for one question."""


class Objects(Members):
    """The copies, names and classes of the values of one program."""

    # Copies: where an object comes from.

    @answered_once([])
    def copies(self, point: Point) -> list[Point]:
        """The values that are the same object as this one."""
        node = point.node
        found = self._of_definition(point, node) if isinstance(node, Definition) else self._same(point, node)
        # Under which condition a collective changes a variable is not asked: mostly whether there are several ranks.
        given = [it.node for it in found if isinstance(it.node, Definition) and it.node.how is How.GIVEN]
        own = {before for it in given for before in it.before} if given and len(found) > 1 else ()
        if not any(it.node in own for it in found):
            return found
        own = {before for it in found if self.is_reduced(it) for before in it.node.before}  # type: ignore[union-attr]
        return [it for it in found if it.node not in own]

    def _of_definition(self, point: Point, definition: Definition) -> list[Point]:
        value = definition.value
        match definition.how:
            case How.PARAMETER:
                found = self._given(point, definition)
            case How.IMPORTED:
                found = self._imported(point.file, definition)
            case How.ELSEWHERE:
                found = self._attribute_elsewhere(point, definition)
            case How.GIVEN | How.CHANGED:
                found = [same for it in definition.before for same in self._before(point, definition, it)]
            case How.ASSIGNED if value is not None:
                found = self.elements([point.at(value)], definition.path)
            case How.ITERATED if value is not None:
                found = self.turns(point.at(value), definition.path)
            case _:
                found = []
        return found

    def _before(self, point: Point, definition: Definition, before: Definition) -> list[Point]:
        """What a variable held before it was changed."""
        if before.how is How.ELSEWHERE and isinstance(definition.node, ast.Attribute):
            return self._member(point.at(definition.node.value), definition.node.attr)
        if before.how is How.ELSEWHERE and isinstance(definition.node, ast.Subscript):
            return self._held_at(point, definition.node)
        return [point.at(before)]

    def _attribute_elsewhere(self, point: Point, definition: Definition) -> list[Point]:
        """What a variable holds that a function reads before it sets it."""
        key = definition.key
        return [] if "." in key else self._outer(key, scope_of(definition), point.file)

    def _same(self, point: Point, node: ast.AST) -> list[Point]:
        match node:
            case ast.Name():
                found = self._named_by(point, node)
            case ast.Attribute():
                found = self._attribute(point, node)
            case ast.Subscript():
                found = self._subscript(point, node)
            case ast.Call():
                found = self._result(point, node)
            case ast.IfExp():
                found = [point.at(node.body), point.at(node.orelse)]
            case ast.BoolOp():
                found = [point.at(value) for value in node.values]
            case ast.NamedExpr() | ast.Await() | ast.Starred():
                found = [point.at(node.value)]
            case _:
                found = []
        return found

    def _named_by(self, point: Point, node: ast.Name) -> list[Point]:
        own, others = self._reaching(node, point.file)
        found = [point.at(it) for it in own]
        if others:
            found += self._outer(node.id, point.file.scopes[node], point.file)
        return found

    def _subscript(self, point: Point, node: ast.Subscript) -> list[Point]:
        own, others = self._reaching(node, point.file)
        found = [point.at(it) for it in own]
        if others and isinstance(node.slice, ast.Constant):
            found += self._held_at(point, node)
        elif others and not isinstance(node.slice, ast.Slice):
            found += [it for _, it in self.contents(point.at(node.value))]
        return found

    def _held_at(self, point: Point, node: ast.Subscript) -> list[Point]:
        """What a container holds at a constant, where that is written somewhere."""
        base: ast.expr = node
        path: list[object] = []
        while isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant):
            path.insert(0, base.slice.value)
            base = base.value
        points = [point.at(base)]
        for key in path:
            points = [it for each in points for it in self.held_at(each, key)]
        return points

    def _attribute(self, point: Point, node: ast.Attribute) -> list[Point]:
        own, others = self._reaching(node, point.file)
        found = [point.at(it) for it in own]
        if others:
            found += self._member(point.at(node.value), node.attr)
        return list(dict.fromkeys(it for each in found for it in self._of_property(each)))

    # Names and classes.

    def ends(self, point: Point) -> list[Point]:
        """The values of which this one is a copy, and which are copies of nothing."""
        waiting, visited, ends = [point], {point}, []
        for now in waiting:  # which grows
            copies = self.copies(now)
            if not copies:
                ends.append(now)
            waiting += [it for it in dict.fromkeys(copies) if it not in visited]
            visited.update(copies)
            if len(waiting) > MOST_POINTS:
                break
        return ends

    @answered_once(frozenset())
    def referents(self, point: Point) -> frozenset[Referent]:
        """What an expression names: functions, classes, modules and what libraries have."""
        return frozenset(it for end in self.ends(point) for it in self._names_of(end))

    def _names_of(self, end: Point) -> Iterator[Referent]:
        node = end.node
        if isinstance(node, Definition):
            yield from self._named_in(end, node)
        elif isinstance(node, ast.Name):
            if hasattr(builtins, node.id):
                yield f"builtins.{node.id}"
        elif isinstance(node, ast.Call) and PARTIAL in self.referents(end.at(node.func)) and node.args:
            yield from self.referents(end.at(node.args[0]))
        elif isinstance(node, ast.Attribute):
            base = end.at(node.value)
            for referent in (*self.referents(base), *self.types(base)):
                if isinstance(referent, str):
                    yield self._submodule(end.file, f"{referent}.{node.attr}")
                else:
                    yield from (f"{name}.{node.attr}" for name in self._libraries_of(referent))

    def _named_in(self, end: Point, definition: Definition) -> Iterator[Referent]:
        if definition.how is How.DEFINED and isinstance(definition.node, (*FUNCTIONS, ast.ClassDef)):
            yield Entity(definition.node, end.file)
        elif definition.how is How.PARAMETER and _is_of_class(definition, end.file):
            of_class = self._class_of_self(definition, end.file)
            yield from [of_class] if of_class is not None else []
        elif definition.how is How.IMPORTED:
            imported = self._imported_name(end.file, definition)
            yield from [imported] if imported is not None else []

    def _libraries_of(self, referent: Entity) -> set[str]:
        return self.library_bases(referent) if isinstance(referent.node, ast.ClassDef) else set()

    def _submodule(self, file: File, name: str) -> Referent:
        module = self._module(file, 0, name) if name.count(".") < 8 else None
        return Entity(module.tree, module) if module else known.canonical(name)

    @answered_once(frozenset(), whole=True)
    def types(self, point: Point) -> frozenset[Referent]:
        """The classes of a value; of what a library's function returned, the function's name."""
        ends = self.ends(point)
        texts = ["builtins.str"] if any(_is_text(it.node) for it in ends) else []
        return frozenset([*(it for end in ends for it in self._types_of(end)), *texts])

    def _types_of(self, end: Point) -> Iterator[Referent]:
        node = end.node
        if isinstance(node, ast.Call):
            for referent in self.referents(end.at(node.func)):
                if isinstance(referent, str) or isinstance(referent.node, ast.ClassDef):
                    yield referent
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield from (it for it in self.types(end.at(node.left)) if it == "pathlib.Path")
        elif isinstance(node, Definition) and node.how is How.PARAMETER:
            if (of_class := self._class_of_self(node, end.file)) is not None:
                yield from [of_class] if not _is_of_class(node, end.file) else []
            elif hook := self._hook_type(node, end.file):
                yield hook
            elif (annotation := getattr(node.node, "annotation", None)) is not None:
                yield from self.referents(Point(_annotated(annotation), end.file))
        elif isinstance(node, ast.Attribute):
            yield from (it for it in self.referents(end) if isinstance(it, str))

    def _hook_type(self, definition: Definition, file: File) -> str:
        """The class of what a library gives a method that it calls."""
        function, of_class = _method_of(definition, file)
        if function is None or of_class is None or definition.node not in function.args.args:
            return ""
        given = [known.HOOKS[it] for it in self.library_bases(of_class) if it in known.HOOKS]
        position = function.args.args.index(definition.node)
        return given[0][position] if given and position < len(given[0]) else ""

    def _is_batch(self, definition: Definition, file: File) -> bool:
        """Whether a library gives a batch of the rank's own."""
        function, of_class = _method_of(definition, file)
        if function is None or of_class is None or function.args.args[1:2] != [definition.node]:
            return False
        return any(function.name in known.DATA_HOOKS.get(it, ()) for it in self.library_bases(of_class))

    def _class_of_self(self, definition: Definition, file: File) -> Entity | None:
        """The class whose object a method gets as its first parameter."""
        function, of_class = _method_of(definition, file)
        if function is None:
            return None
        first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
        return of_class if first is definition.node and not is_static(function) else None


def _is_text(node: object) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _method_of(parameter: Definition, file: File) -> tuple[Function, Entity] | tuple[None, None]:
    """The method that a parameter belongs to, and its class; nothing of a function that is none."""
    function = file.parents[file.parents[parameter.node]]
    of_class = file.class_of(function)
    if of_class is None or not isinstance(function, FUNCTIONS):
        return None, None
    return function, Entity(of_class, file)


def _is_of_class(parameter: Definition, file: File) -> bool:
    """Whether a method's first parameter is its class and no object."""
    function = file.parents[file.parents[parameter.node]]
    return any(dotted(it) == "classmethod" for it in getattr(function, "decorator_list", ()))


def _annotated(annotation: ast.expr) -> ast.expr:
    """The class of ``X``, ``X | None`` or ``Optional[X]``."""
    if isinstance(annotation, ast.BinOp):
        return annotation.left
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Name | ast.Attribute):
        return annotation.slice if (dotted(annotation.value) or "").endswith("Optional") else annotation.value
    return annotation

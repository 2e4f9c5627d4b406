"""What an attribute of a module, a class or an object is, by the classes of the program and what is stored."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpdoctor.program import known
from ddpdoctor.program.chains import Definition
from ddpdoctor.program.containers import Containers
from ddpdoctor.program.files import FUNCTIONS, File, Function, argument, dotted, name_called, returned
from ddpdoctor.program.index import Entity, Point, Referent


class Members(Containers):
    """The attributes of one program."""

    def __init__(self, files: Mapping[str, File], called: Mapping[tuple[str, int], Sequence[str]]) -> None:
        super().__init__(files, called)
        self._owned: dict[ast.Attribute, Iterable[Referent]] = self._answers["owned"]
        self._stored_by_owner: dict[str, Mapping[Referent, list[Point]]] = self._answers["stored"]
        self._families: dict[Entity, list[Entity]] = {}
        self._derived: defaultdict[Entity, list[Entity]] = defaultdict(list)

    def _of_property(self, member: Point) -> list[Point]:
        """What a property returns; the member itself where it is none."""
        function = member.node.node if isinstance(member.node, Definition) else None
        if isinstance(function, FUNCTIONS) and _is_property(function):
            return [Point(value, member.file) for value in returned(function)]
        return [member]

    def reads_of(self, function: Function, file: File) -> Iterator[tuple[ast.Attribute, File]]:
        """Where the program reads a property."""
        of_class = file.class_of(function) if _is_property(function) else None
        if of_class is None:
            return
        below = {Entity(of_class, file), *self._subclasses([Entity(of_class, file)])}
        for each in self.files.values():
            for node in each.scopes:
                if not isinstance(node, ast.Attribute) or node.attr != function.name:
                    continue
                if not below.isdisjoint(self.types(Point(node.value, each))):
                    yield node, each

    def _member(self, owner: Point, name: str) -> list[Point]:
        """What an attribute of a module, a class or an object is."""
        found: list[Point] = []
        for referent in self.referents(owner):
            if isinstance(referent, Entity) and isinstance(referent.node, ast.Module):
                found += self._of_module(name, referent.file)
            elif isinstance(referent, Entity) and isinstance(referent.node, ast.ClassDef):
                found += self._of_class(referent, name)
        for of_type in self.types(owner):
            if isinstance(of_type, Entity):
                found += self._of_class(of_type, name)
            found += self._stored(name, of_type)
        return found or [it for end in self.ends(owner) for it in self._constructed(end, name)]

    def _constructed(self, end: Point, name: str) -> Iterator[Point]:
        """What a wrapper or a data class was given for an attribute of its own name."""
        if not isinstance(end.node, ast.Call):
            return
        for referent in self.referents(end.at(end.node.func)):
            if isinstance(referent, str) and known.WRAPPERS.get(referent) == name and end.node.args:
                yield end.at(end.node.args[0])
            elif referent in known.NAMESPACES and (given := argument(end.node, None, name)) is not None:
                yield end.at(given)
            elif isinstance(referent, Entity) and isinstance(referent.node, ast.ClassDef):
                fields = [dotted(it.target) for it in referent.node.body if isinstance(it, ast.AnnAssign)]
                given = argument(end.node, fields.index(name), name) if name in fields else None
                if given is None and self._keeps_settings(referent):
                    given = argument(end.node, None, name)
                yield from [end.at(given)] if given is not None else []

    def _keeps_settings(self, of_class: Entity) -> bool:
        """Whether an object's attributes are what its class is given by name: ``self.__dict__.update(settings)``."""
        makes = self._methods(of_class, "__init__")
        nodes = (it for of in makes if isinstance(of, Entity) for it in ast.walk(of.node))
        words = (getattr(it, "attr", getattr(it, "id", "")) for it in nodes)
        return not {"__dict__", "vars", "setattr"}.isdisjoint(words)

    def _of_class(self, of_class: Entity, name: str) -> list[Point]:
        """What a class, or a base of it, defines under a name."""
        for entity in self.family(of_class):
            scope = entity.node
            assert isinstance(scope, ast.ClassDef)
            if definitions := self.chains(scope, entity.file).all.get(name):
                return [Point(it, entity.file) for it in definitions]
        return []

    def _stored(self, name: str, of_type: Referent) -> list[Point]:
        """What the program assigns to an attribute of objects of a class, or puts into what it holds."""
        found = self._stored_by_owner.get(name)
        if found is None:
            found = defaultdict(list)
            assigned = ((store, store, file) for store, file in self._stores.get(name, ()))
            stores = (*assigned, *self._filled.get(name, ()))
            for store, by, file in stores:
                if definition := self.chains(file.scopes[store], file).definition(by):
                    for owner in self._owners(store, file):
                        found[owner].append(Point(definition, file))
            if all(store in self._owned for store, _, _ in stores):
                self._stored_by_owner[name] = found
        return found.get(of_type, [])

    def _owners(self, store: ast.Attribute, file: File) -> Iterable[Referent]:
        """The classes of the object whose attribute is assigned, with those that have it for a base."""
        if store in self._owned:
            return self._owned[store]
        under_way, cuts = bool(self._under_way), self._cuts
        types = self.types(Point(store.value, file))
        is_whole = not under_way or self._cuts == cuts
        own = [it for it in types if isinstance(it, Entity)]
        owners = {*types, *(base for it in own for base in self.family(it)), *self._subclasses(own)}
        if is_whole:
            self._owned[store] = owners
        return owners

    def _subclasses(self, bases: Sequence[Entity]) -> list[Entity]:
        if not self._derived:
            classes = [it for entities in self._named.values() for it in entities]
            for of_class in classes:
                for base in self.family(of_class) if isinstance(of_class.node, ast.ClassDef) else ():
                    self._derived[base].append(of_class)
        return list(dict.fromkeys(it for base in bases for it in self._derived.get(base, ())))

    def family(self, of_class: Entity) -> list[Entity]:
        """A class and those of its bases that the program defines."""
        if of_class not in self._families:
            self._families[of_class] = self._find_family(of_class)
        return self._families[of_class]

    def _find_family(self, of_class: Entity) -> list[Entity]:
        found = [of_class]
        for entity in found:  # which grows
            bases = entity.node.bases if isinstance(entity.node, ast.ClassDef) else []
            for base in bases:
                referents = self.referents(Point(base, entity.file))
                found += [it for it in referents if isinstance(it, Entity) and it not in found]
        return [it for it in found if isinstance(it.node, ast.ClassDef)]

    def buffers(self, owner: Point) -> frozenset[str]:
        """The buffers that the classes of a module register."""
        types = [it for it in self.types(owner) if isinstance(it, Entity)]
        return frozenset().union(*(self._registered(of) for it in types for of in self.family(it)))

    def _registered(self, of_class: Entity) -> frozenset[str]:
        calls = (it for it in ast.walk(of_class.node) if isinstance(it, ast.Call))
        given = (it.args[0] for it in calls if name_called(it) == "register_buffer" and it.args)
        return frozenset(str(it.value) for it in given if isinstance(it, ast.Constant))

    def library_bases(self, of_class: Entity) -> set[str]:
        """The classes of libraries that a class derives from."""
        bases = [
            referent
            for entity in self.family(of_class)
            for base in getattr(entity.node, "bases", ())
            for referent in self.referents(Point(base, entity.file))
        ]
        return {it for it in bases if isinstance(it, str)}


def _is_property(function: Function) -> bool:
    return any("property" in (dotted(it) or "") for it in function.decorator_list)

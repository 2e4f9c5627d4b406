"""The patches that only set or remove arguments of a call: a row each, by the name of the patch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import INIT, SAMPLER, argument
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source

_Calls = Callable[[Case], Iterable[tuple[Source, Node]]]
_ANY = None


def _at_line(*names: str) -> _Calls:
    """The first call of one of these names at the line of the finding."""
    return lambda case: [case.call_at(case.finding.where, *names)]


def _in_files(*names: str) -> _Calls:
    """All calls of these names in the file of the finding, else in a script that the ranks were started with."""

    def found(case: Case) -> Iterable[tuple[Source, Node]]:
        for source in [case.source, *case.scripts]:
            if made := source.calls(*names):
                return [(source, call) for call in made]
        raise CannotPatch(f"{names[0].rpartition('.')[2]} is called in another file")

    return found


@dataclass(frozen=True)
class Arguments:
    """A patch that sets one argument of some calls, or removes some.

    Args:
        sets: the argument and its value; a value ``module.name(...)`` is imported as the file does it.
        position: of that argument, where it may be given without its name.
        over: the values that it replaces; any where it is None.
        removes: the arguments that it removes; where it sets one, the one whose place that takes.
        instead: what is called in place of a function that does not know the argument.
    """

    title: str
    calls: _Calls
    sets: tuple[str, str] | None = None
    position: int | None = None
    over: frozenset[str] | None = frozenset()
    removes: tuple[str, ...] = ()
    instead: dict[str, str] = field(default_factory=dict)

    def __call__(self, case: Case) -> str:
        """Change the calls, and say what was done; CannotPatch where none has to change."""
        changes = self._set if self.sets else self._remove
        if not any([changes(source, call) for source, call in self.calls(case)]):
            not_there = f"{' and '.join(self.removes)} are not among its arguments"
            raise CannotPatch(f"{self.sets[0]} is set already" if self.sets else not_there)
        return self.title

    def _remove(self, source: Source, call: Node) -> bool:
        given = [value for name in self.removes if (value := argument(call, None, name)) is not None]
        if given:
            source.remove_arguments(call, given)
        return bool(given)

    def _set(self, source: Source, call: Node) -> bool:
        assert self.sets is not None
        name, value = self.sets
        if (given := argument(call, self.position, name)) is not None:
            return self._replace(source, source.value_of(given))
        text = f"{name}={_written(source, value)}"
        replaced = [keyword for keyword in call.keywords if keyword.arg in self.removes]
        if replaced:
            source.replace(replaced[0], text)
        else:
            source.add_argument(call, text)
        for old, new in self.instead.items():
            if source.means(call.func, old):
                module, _, function = new.rpartition(".")
                source.replace(call.func, f"{source.use(module)}.{function}")
        return True

    def _replace(self, source: Source, value: Node) -> bool:
        assert self.sets is not None
        if self.over is not None and source.code(value) not in self.over:
            return False
        source.replace(value, _written(source, self.sets[1]))
        return True


def _written(source: Source, value: str) -> str:
    """A value as the file may write it: ``datetime.timedelta(hours=2)`` by its import."""
    name, bracket, rest = value.partition("(")
    return f"{source.use(name)}{bracket}{rest}" if bracket else value


map_location = patch("DD406")(
    Arguments('map_location="cpu"', _at_line("torch.load"), sets=("map_location", '"cpu"'), position=1)
)
exist_ok = patch("DD020")(
    Arguments(
        "exist_ok=True for the folder",
        _at_line("os.makedirs", "mkdir"),
        sets=("exist_ok", "True"),
        instead={"os.mkdir": "os.makedirs"},
    )
)
broadcast_buffers = patch("DD216")(
    Arguments("the wrap without broadcast_buffers", Case.wraps, removes=("broadcast_buffers",))
)
no_find_unused = patch("DD603")(
    Arguments("the wrap without find_unused_parameters", Case.wraps, removes=("find_unused_parameters",))
)
find_unused = patch("DD204", "DD222", after=("gather_with_gradient",), leaves_choice=True)(
    Arguments(
        "find_unused_parameters=True",
        Case.wraps,
        sets=("find_unused_parameters", "True"),
        over=frozenset({"False"}),
        removes=("static_graph",),
    )
)
no_reentrant = patch("DD213")(
    Arguments(
        "use_reentrant=False",
        _in_files("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"),
        sets=("use_reentrant", "False"),
        over=frozenset({"True"}),
    )
)
group_timeout = patch("DD306", leaves_choice=True)(
    Arguments(
        "a timeout of two hours for the process group",
        _in_files(INIT),
        sets=("timeout", "datetime.timedelta(hours=2)"),
        over=_ANY,
    )
)
sampler_of_group = patch("DD105", changes=("samples",))(
    Arguments(
        "rank and number of ranks of the process group", _at_line(SAMPLER), removes=("num_replicas", "rank")
    )
)

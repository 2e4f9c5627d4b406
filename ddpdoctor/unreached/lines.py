"""The lines of a program that no rank ran: what is called there, and whether ranks may decide about it differently."""

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Passed, Where
from ddpdoctor.check import Kind as Subject
from ddpdoctor.program import Condition, Expression, Origin, Program, Source
from ddpdoctor.program.files import name_called
from ddpdoctor.program.index import Context, Origins
from ddpdoctor.program.known import GENERATORS, LOADERS, PROCESSES, SEEDS, gathers
from ddpdoctor.program.ways import Way, ways_to
from ddpdoctor.recorder.operations import OPERATIONS, Kind
from ddpdoctor.unreached.processes import Processes
from ddpdoctor.unreached.ranks import SIZE, asks_size, divides, is_impossible, ranks_where
from ddpdoctor.unreached.sent import GIVE_ALL, Sent

DDP = "torch.nn.parallel.DistributedDataParallel"
_GROUP = ("torch.distributed.init_process_group",)
JOINED_BY_ALL = frozenset(
    {
        DDP,
        *("accelerate.Accelerator.wait_for_everyone", "accelerate.PartialState.wait_for_everyone"),
        *("lightning.Fabric.barrier", "lightning.Trainer.strategy.barrier", "horovod.torch.barrier"),
        *("ignite.distributed.barrier", "torch.distributed.new_group"),
    }
)
"""What every rank has to call, beside the collectives of torch."""
_GROUPS = ("group", "process_group", "pg")
"""Arguments that name the ranks which take part."""
_MOST_READ, _MOST_BESIDE_A_RUN = 30_000, 8_000
"""Lines of a program that are judged by their source: some ten seconds for that alone, and a few beside a run."""
_NOT_REACHED = Evidence("No rank came to this line in the run; this follows from the source.")
_MOST_LINES = 6
"""Of a path, that evidence lists."""
_COLLECTIVES = frozenset(it.name for it in OPERATIONS if it.kind is not Kind.PAIR)
_INTERESTING = frozenset(
    {
        *_COLLECTIVES,
        *(name.rpartition(".")[2] for name in JOINED_BY_ALL),
        *("gather_for_metrics", "reduce", "broadcast"),
    }
)
"""How what is looked for is called, unless it is imported under another name."""


@dataclass(frozen=True)
class Sight:
    """One instance of a problem."""

    at: Where
    words: Mapping[str, str] = field(default_factory=dict)
    """What the headline is filled with."""
    evidence: tuple[Evidence, ...] = ()
    """The path of the value, line by line, and the conditions in front."""
    certain: bool = True
    """Whether it follows from facts; information otherwise."""


@dataclass(frozen=True, eq=False)
class Decision:
    """A condition that ranks may see differently."""

    condition: Condition
    part: Expression
    """The part of it of which that follows."""
    source: Source

    @property
    def text(self) -> str:
        """As it is written, with what makes it so: ``not (rank != 0)``."""
        text = self.condition.test.text
        return text if self.condition.holds else f"not ({text})"

    @property
    def because(self) -> str:
        """Why ranks may see it differently."""
        return BECAUSE[self.source.origin]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Where the value comes from, line by line."""
        return (
            Evidence(f"decided by {self.condition.test.text}: {self.because}", where=self.condition.at),
            *path_of(self.source, self.condition.at),
        )


def path_of(source: Source, end: Where | None = None) -> tuple[Evidence, ...]:
    """The lines from where a value begins to where it is used."""
    if not source.path:
        return ()
    first, *through = [it for it in source.path if it != end] or list(source.path[:1])
    begins = Evidence(f"begins with {source.name}", where=first)
    return (begins, *(Evidence("goes on through this line", where=it) for it in through[:_MOST_LINES]))


BECAUSE = {
    Origin.RANK: "the number of the rank",
    Origin.OWN_DATA: "a value of each rank's own data, which no collective made equal",
    Origin.CLOCK: "the clock of each process",
    Origin.RANDOM: "random numbers, which nothing seeds alike on all ranks",
}
"""Why ranks may see a condition differently."""


class UnreachedLines:
    """A program, less what ranks ran of it: ``reached`` is whether one came to a line, ``ran`` whether there was a run
    at all."""

    def __init__(
        self, program: Program, reached: Callable[[Where], bool] = lambda _: False, *, ran: bool = False
    ) -> None:
        self.program, self._reached, self.ran = program, reached, ran
        self._decisions: dict[tuple[ast.expr, Context | None], Decision | None] = {}
        self._ways: dict[ast.AST, list[Way]] = {}

    @property
    def too_many(self) -> str | None:
        """The sentence of a report about a program that would take minutes to read; None where it does not."""
        ends = (file.tree.body[-1].end_lineno for file in self.program.files.values() if file.tree.body)
        total = sum(it or 0 for it in ends)
        if total <= (_MOST_BESIDE_A_RUN if self.ran else _MOST_READ):
            return None
        return f"not judged by its source: {self.program.script} and its modules have {total:,} lines"

    def judge(self, check: Check) -> Judgement:
        """What a check says that has only its row of :attr:`~ddpdoctor.check.Check.unreached`, once for each line."""
        assert check.unreached is not None
        look, headline = check.unreached
        found: dict[Where, Sight] = {}
        with suppress(RecursionError):  # what is too deep to read is no finding
            for sight in look(self):
                found.setdefault(sight.at, sight)
        findings = [self._finding(check, it, headline) for it in found.values()]
        return findings or Passed("nothing in the source shows it")

    def _finding(self, check: Check, sight: Sight, headline: str) -> Finding:
        report = check.warn if sight.certain else check.info
        return report(
            headline.format_map(sight.words),
            where=sight.at,
            evidence=((_NOT_REACHED,) if self.ran else ()) + sight.evidence,  # without a run, a note says so
            confidence=Confidence.CERTAIN if sight.certain else Confidence.LIKELY,
            foreseen=True,
            about=Subject.LINE.of(f"{sight.at.file}:{sight.at.line}"),
        )

    def calls(
        self, names: Collection[str], other: Callable[[str], bool] = lambda _: False, *, ends: str = ""
    ) -> Iterator[Expression]:
        """The calls of functions with these qualified names; or of which ``other`` is true, and whose names end so."""
        last = {name.rpartition(".")[2] for name in names}
        if ends:
            called = {name_called(it) for file in self.program.files.values() for it in file.calls}
            last |= {it for it in called if it.endswith(ends)}
        found = self._named(last)
        yield from (it for it in found if not it.called.isdisjoint(names) or any(map(other, it.called)))

    def _named(self, last: Collection[str]) -> Iterator[Expression]:
        """The calls whose function is spelled so, or imported as something else."""
        for file in self.program.files.values():
            others = {
                alias.asname
                for it in file.imports
                for alias in it.names
                if alias.asname and alias.name.rpartition(".")[2] in last
            }
            for call in file.calls:
                if name_called(call) in last or name_called(call) in others:
                    yield Expression(self.program, file, call)

    def ways(self, call: Expression) -> list[Way]:
        """The ways to a call on which there is a line that no rank ran."""
        if call.node not in self._ways:
            self._ways[call.node] = self._ways_to(call)
        return [way for way in self._ways[call.node] if not all(map(self._reached, way.lines))]

    def undecided(self, call: Expression) -> list[Way]:
        """The same, and those that all lines were reached of, with the conditions that never kept a rank from it."""
        ways = self.ways(call)
        for way in (it for it in self._ways[call.node] if it not in ways):
            if untried := tuple(filter(self._is_untried, way.conditions)):
                ways.append(replace(way, conditions=untried))
        return ways

    def _is_untried(self, condition: Condition) -> bool:
        body = condition.otherwise
        return bool(body) and not self._reached(condition.test.file.where(body[0]))

    def _ways_to(self, call: Expression) -> list[Way]:
        ways = (it for it in ways_to(call) if not any(map(is_impossible, it.conditions)))
        return [it for it in ways if self._processes.is_of_job(it) and not _is_of_one_that_trains(it)]

    @cached_property
    def _processes(self) -> Processes:
        return Processes(self.program, self.calls(_GROUP), self.calls(PROCESSES))

    def is_unreached(self, where: Where) -> bool:
        """Whether no rank came to a line."""
        return not self._reached(where)

    @cached_property
    def is_distributed(self) -> bool:
        """Whether the program makes a process group by itself."""
        return next(self.calls(_GROUP), None) is not None

    @cached_property
    def is_wrapped(self) -> bool:
        """Whether it wraps a model for all ranks."""
        return next(self.calls((DDP,)), None) is not None

    @cached_property
    def collectives(self) -> list[Expression]:
        """The calls that every rank of the job has to make."""
        found = self._named(_INTERESTING)
        return [
            it
            for it in found
            if any(gathers(name) or name in JOINED_BY_ALL for name in it.called) and not _names_a_group(it)
        ]

    @cached_property
    def backwards(self) -> list[Expression]:
        """The backwards of losses that wrapped models made."""
        calls = self.calls_of_methods(("backward",)) if self.is_wrapped else ()
        return [it for it in calls if self.is_joint(it)]

    def is_joint(self, backward: Expression, way: Way | None = None) -> bool:
        """Whether a wrapped model made the loss of a backward, where it is reached by one way."""
        node = backward.node
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        loss = replace(backward, node=node.func.value, context=way.context if way else None)
        return any(map(_calls_model, loss.made_of(_is_detached)))

    def calls_of_methods(self, names: Collection[str]) -> Iterator[Expression]:
        """The calls of methods with these names."""
        yield from (it for it in self._named(names) if it.owner is not None)

    @cached_property
    def meetings(self) -> list[Expression]:
        """The calls at which ranks wait for each other."""
        return [*self.collectives, *self.backwards]

    @cached_property
    def optimizer_steps(self) -> list[Expression]:
        """The calls by which optimizers of torch change weights."""
        calls = self.calls_of_methods(("step",))
        return [it for it in calls if it.owner is not None and any(map(_is_optimizer, it.owner.classes))]

    @cached_property
    def sends_weights(self) -> bool:
        """Whether the program broadcasts anything by itself."""
        return any("broadcast" in name for it in self.collectives for name in it.called)

    # What ranks may see differently.

    def decision(self, condition: Condition) -> Decision | None:
        """The part of a condition that ranks may see differently; None where that does not follow from the source."""
        for part in condition.test.parts():
            key = part.node, part.context
            if key not in self._decisions:
                source = self.own_source(part)
                self._decisions[key] = Decision(condition, part, source) if source else None
            if (found := self._decisions[key]) is not None and not _is_for_each(condition, found):
                return Decision(condition, found.part, found.source)
        return None

    def decided_by(self, origins: Collection[Origin], conditions: Sequence[Condition]) -> Decision | None:
        """The first of some conditions that ranks may see differently by one of these, while the job goes on."""
        decisions = (self.decision(it) for it in conditions if not self.ends_job(it))
        return next((it for it in decisions if it and it.source.origin in origins), None)

    def ends_job(self, condition: Condition) -> bool:
        """Whether a rank that does not go on raises, or ends its process: then the launcher ends the others."""
        last = condition.otherwise[-1:] if not condition.holds else []
        ends_process = self.program.loops.ends_process
        return any(isinstance(it, ast.Raise) or ends_process(condition.test.file, it) for it in last)

    @cached_property
    def sent(self) -> Sent:
        """What collectives make equal in place."""
        return Sent(self.program, self.calls(GIVE_ALL))

    def own_source(self, value: Expression, *, in_order: bool = False) -> Source | None:
        """Where a value begins that differs between ranks; None where that does not follow, or only in its size.
        ``in_order`` where the caller asks by itself if a collective has an attribute ahead of its use."""
        origins = value.origins
        if not origins.differs:
            return None
        hides = asks_size if in_order else lambda it: asks_size(it) or self.sent.is_attribute(it)
        kinds = value.kinds_without(hides)
        by_rank = kinds <= {Origin.RANK, Origin.EQUAL, Origin.REDUCED, Origin.ENVIRONMENT}
        own = (
            (Origin.CLOCK, True),
            (Origin.RANDOM, self._draws_apart(origins)),
            (Origin.OWN_DATA, self._is_of_shards(value)),
        )
        found = (origin for origin, differs in own if differs and origin in kinds and not by_rank)
        origin = next(found, Origin.RANK if Origin.RANK in kinds else None)
        return origins.of(origin) if origin else None

    def _draws_apart(self, origins: Origins) -> bool:
        """Whether ranks draw other random numbers: each process begins with a seed of its own."""
        drawn = [it.name for it in origins.sources if it.origin is Origin.RANDOM]
        return any(not self.seeds_alike(it) for it in drawn)

    def seeds_alike(self, name: str) -> bool:
        """Whether the program seeds what draws by what may be equal on all ranks."""
        own = [it for it in (*SEEDS, *GENERATORS) if name.partition(".")[0] == it.partition(".")[0]]
        seeds = [*self.calls(own), *self._named({"set_seed", "seed_everything"})] if own else []
        return any(not it.arguments or any(not each.origins.differs for each in it.arguments) for it in seeds)

    @cached_property
    def broadcasts_buffers(self) -> bool:
        """Whether forwards of wrapped models send the buffers of rank 0."""
        given = [it.argument(None, "broadcast_buffers") for it in self.calls((DDP,))]
        return any(it is None or getattr(it.node, "value", None) is not False for it in given)

    def _is_of_shards(self, value: Expression) -> bool:
        """Whether the data that a value is made of is another on each rank: a loader without a sampler gives all ranks
        the same, as long as it does not shuffle."""
        loaders = [it for it in value.made_of(asks_size) if it.is_call and not it.called.isdisjoint(LOADERS)]
        return not loaders or any(map(divides, loaders))

    @cached_property
    def _by_rank(self) -> dict[tuple[str, str], list[frozenset[int] | None]]:
        """The ranks that come to the collectives under conditions on the rank, by their files and operations."""
        found: dict[tuple[str, str], list[frozenset[int] | None]] = defaultdict(list)
        for call in self.collectives:
            for way in ways_to(call):
                limits = [ranks_where(it) for it in way.conditions if it.by_rank]
                if limits:
                    found[_operation(call)].append(_in_all(limits))
        return found

    def is_paired(self, call: Expression, decision: Decision, among: Sequence[Expression] = ()) -> bool:
        """Whether the ranks that do not come to a call may come to one that it meets, of the meetings or of these."""
        condition = decision.condition
        otherwise: set[ast.AST] = {*self.program.calls_otherwise(condition)}
        other = [_operation(it) for it in among or self.meetings if it.node in otherwise]
        if decision.source.origin is not Origin.RANK:
            return bool(other)
        if _operation(call) in other:
            return True
        own = ranks_where(condition)
        others = self._by_rank[_operation(call)]
        return any(it != own and (own is None or it is None or not it <= own) for it in others)


def _is_of_one_that_trains(way: Way) -> bool:
    """Whether some ranks come that way only where a module is in train mode: what they run alone is an evaluation."""
    asks_mode = (any(part.is_attribute("training") for part in it.test.parts()) for it in way.conditions)
    first = next((number for number, asks in enumerate(asks_mode) if asks), len(way.conditions))
    return any(it.by_rank for it in way.conditions[first:])


def _is_optimizer(name: str) -> bool:
    return name.startswith("torch.optim.") and not name.startswith("torch.optim.lr_scheduler.")


def _calls_model(value: Expression) -> bool:
    return isinstance(value.node, ast.Call) and DDP in value.inner(value.node.func).classes


def _is_detached(value: Expression) -> bool:
    return value.method in ("detach", "item", "tolist", "numpy")


def _is_for_each(condition: Condition, decision: Decision) -> bool:
    """Whether a condition on the rank holds for another rank in each turn of a loop, or it is not known for which."""
    if decision.source.origin is not Origin.RANK:
        return False
    ranks = ranks_where(condition)
    return ranks is None or not 0 < len(ranks) < SIZE


def _operation(call: Expression) -> tuple[str, str]:
    return call.file.path, name_called(call.node) if isinstance(call.node, ast.Call) else ""


def _in_all(sets: Sequence[frozenset[int] | None]) -> frozenset[int] | None:
    known = [it for it in sets if it is not None]
    return frozenset.intersection(*known) if len(known) == len(sets) else None


def _names_a_group(call: Expression) -> bool:
    """Whether only some ranks have to call it: those of a group, which may be one that they make among themselves."""
    given = (call.argument(None, name) for name in (*_GROUPS, "use_local_synchronization"))
    return any(it is not None and getattr(it.node, "value", True) for it in given)

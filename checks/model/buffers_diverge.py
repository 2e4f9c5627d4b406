import ast
import math
from collections.abc import Iterator, Mapping

from ddpdoctor.blame.wording import verb
from ddpdoctor.check import Check, Evidence, Finding, Judgement, NotMeasured, Passed, Where
from ddpdoctor.program import Program
from ddpdoctor.recorder.events.training import Buffers, Forward, Wrapper
from ddpdoctor.recorder.patches.calls import BatchNormUpdate
from ddpdoctor.text import differ, listing, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_key, grouped, in_turn, of_model, on_each_rank, shown_at
from ddpdoctor.trace.sync import Group, differing, replicas

_Row = Mapping[int, Buffers]


class BuffersDiverge(Check):
    """Ranks evaluate with buffers that differ.

    What it finds:
        Buffers of a model wrapped with broadcast_buffers=False, BatchNorm's running statistics for instance, that
        differ between ranks which all evaluate with it. And warnings: where such buffers differ at the end of training
        and the model itself changes them as a whole by each rank's own data, as codebooks and running means; where
        torch.optim.swa_utils.update_bn computes the statistics of an averaged model anew on each rank from its own
        part of the data; and where a rank alone runs a batch through the model in train mode without gradients, before
        it saves the model or evaluates with it.

    Why it matters:
        Weights are equal, and the ranks still hold different models: each normalises with the statistics of its own
        data. A metric over all ranks mixes them, and the checkpoint has those of one.

    Example:
        broadcast_buffers was switched off against an error, and stayed off:
            model = DistributedDataParallel(net, broadcast_buffers=False)
            ...
            model.eval()
            accuracy = evaluate(model, shard_of_this_rank)

    Fix:
        Make them equal before evaluating: for buffer in model.buffers(): dist.broadcast(buffer, src=0). Or use
        SyncBatchNorm, or leave broadcast_buffers at its default.
    """

    code = "DD216"
    title = "ranks evaluate with equal buffers"
    explained_by = ("DD201", "DD202", "DD205", "DD206", "DD207", "DD225", "DD227")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        of_parts = [
            *(self._alone(*it) for group in replicas(trace) for it in _changed_alone(group)),
            *[self._of_part(row) for row in _updated_from_parts(recordings)][:1],
        ]
        try:
            judgement = self._evaluated(trace)
        except NotMeasured:
            if of_parts:
                return of_parts
            raise
        return [*judgement, *of_parts] if isinstance(judgement, list) else of_parts or judgement

    def _alone(self, wrapper: Wrapper, forwards: Mapping[int, Forward]) -> Finding:
        """Of forwards of one line."""
        first, ranks = next(iter(forwards.values())), ranks_phrase(forwards)
        return self.warn(
            f"{ranks} alone {verb(forwards, 'runs', 'run')} a batch through {wrapper.module} in train mode, which "
            f"changes the running statistics of {plural(first.batch_norms or 0, 'BatchNorm layer')}",
            why="In train mode BatchNorm takes each batch into its running statistics, under no_grad too. The "
            "checkpoint has them, and with the next forward DDP sends those of rank 0 to every rank.",
            fix="model.eval()     # before that forward\n...\nmodel.train()    # behind it",
            ranks=tuple(forwards),
            where=first.at,
            about=of_model(wrapper),
            explained_by=("DD303", "DD231"),
        )

    def _of_part(self, row: Mapping[int, BatchNormUpdate]) -> Finding:
        unequal = differing({rank: update.digests for rank, update in row.items()})
        return self.warn(
            f"update_bn computes the BatchNorm statistics on {ranks_phrase(row)} from each rank's own part of the "
            "data",
            why="update_bn uses the data of one rank only. The averaged model has different "
            "statistics on each rank, and the checkpoint has those of one rank.",
            fix="for buffer in averaged.buffers():    # after update_bn, on every rank\n"
            "    if buffer.is_floating_point():\n        dist.all_reduce(buffer)\n"
            "        buffer /= dist.get_world_size()",
            evidence=(Evidence(f"differ: {listing(unequal)}", tuple(row)),),
            where=next(iter(row.values())).at,
        )

    def _evaluated(self, trace: Trace) -> Judgement:
        evaluated = [pair for group in replicas(trace) for pair in _rows(group, "evaluation")]
        ended = [pair for group in replicas(trace) for pair in _rows(group, "end")]
        changed = [(*pair, names, at) for pair in ended for names, at in _changed(trace, *pair)]
        if changed and not any(_differing(row) for _, row in evaluated):
            return [self._trained(*it) for it in changed]
        self.require(evaluated, "no two ranks evaluated a model with buffers that are not broadcast")
        unequal = [(wrapper, row) for wrapper, row in evaluated if _differing(row)]
        models = grouped(unequal, lambda pair: pair[0].index)
        return [self._diverge(*evaluations[0]) for evaluations in models] or Passed(
            f"buffers were equal in {plural(len(evaluated), 'evaluation')}"
        )

    def _trained(self, wrapper: Wrapper, row: _Row, names: tuple[str, ...], at: Where) -> Finding:
        return self.warn(
            f"{ranks_phrase(row)} train {wrapper.module} with different buffers: "
            f"{differ(len(names), len(next(iter(row.values())).digests), 'buffer')}",
            why="The model changes them by each rank's own data, and with broadcast_buffers=False nothing makes them "
            "equal. The ranks train one set of weights for models that differ, and the checkpoint has the buffers of "
            "one rank.",
            fix="dist.all_reduce(statistics)    # over the ranks, before the buffer is changed by them",
            where=at,
            evidence=(Evidence(f"differ: {listing(names)}", tuple(row)), *shown_at("wrapped", wrapper.at)),
            about=of_model(wrapper),
        )

    def _diverge(self, wrapper: Wrapper, row: _Row) -> Finding:
        first, unequal = next(iter(row.values())), _differing(row)
        return self.fail(
            f"{ranks_phrase(row)} evaluate {wrapper.module} with different buffers: "
            f"{differ(len(unequal), len(first.digests), 'buffer')}",
            where=wrapper.at or first.at,
            evidence=(Evidence(f"differ: {listing(unequal)}", tuple(row)), *shown_at("evaluated", first.at)),
            about=of_model(wrapper),
        )


def _changed_alone(group: Group) -> Iterator[tuple[Wrapper, Mapping[int, Forward]]]:
    """Forwards without autograd that change running statistics on some ranks only, behind which such a rank saves
    before it trains again, or evaluates with these statistics; by wrapper, those of one line."""
    forwards = on_each_rank(group, lambda recording: recording.events(Forward))
    changing = [(rank, it) for rank, it in forwards if not it.grad and it.training and it.batch_norms]
    for row in by_key(changing, lambda forward: (forward.wrapper, forward.at)):
        used = any(_is_used(group[rank], forward) for rank, forward in row.items())
        on_all = {rank for rank, forward in changing if forward.wrapper == next(iter(row.values())).wrapper}
        wrapper = next(iter(group.values())).wrapper(next(iter(row.values())).wrapper)
        if used and wrapper and on_all < set(group):
            yield wrapper, row


def _is_used(recording: Recording, forward: Forward) -> bool:
    """Whether statistics that a forward changed are saved before training goes on, or evaluated with at any time."""
    forwards = [it for it in recording.events(Forward) if it.wrapper == forward.wrapper]
    again = min((it.time for it in forwards if it.grad and it.time > forward.time), default=math.inf)
    saved = any(forward.time < save.begin < again for save in recording.saves)
    return saved or any(not it.training for it in forwards)


def _rows(group: Group, when: str) -> Iterator[tuple[Wrapper, dict[int, Buffers]]]:
    """The buffers that several ranks had at the same moment, where nothing broadcasts them."""
    for wrapper in next(iter(group.values())).wrappers:
        if wrapper.flags.get("broadcast_buffers", True) or not wrapper.buffers:
            continue
        buffers = on_each_rank(group, lambda recording: recording.events(Buffers))
        told = [pair for pair in buffers if pair[1].wrapper == wrapper.index and pair[1].when == when]
        for row in in_turn(told):
            yield wrapper, row


def _changed(trace: Trace, wrapper: Wrapper, row: _Row) -> Iterator[tuple[tuple[str, ...], Where]]:
    """The buffers that differ and that the script changes as a whole, by what it adds to them or puts in their
    place; a queue, of which elements are replaced, may be each rank's own."""
    recording = next(iter(trace.recorded.values()))
    program = Program.holding(wrapper.at, recording.script) if wrapper.at else None
    places = dict(_changes(program)) if program else {}
    unequal = tuple(it for it in _differing(row) if it.rpartition(".")[2] in places)
    if unequal:
        yield unequal, places[unequal[0].rpartition(".")[2]]


def _changes(program: Program) -> Iterator[tuple[str, Where]]:
    """The attributes of modules that the program changes in place, with a line that does."""
    classes = {(file.path, name) for file, of in program.modules() for name in [of.name]}
    owners = ((it.owner, it) for it in program.every_call() if it.method.endswith("_"))
    values = (it for it in program.assigned() if isinstance(it[0].node, ast.Attribute))
    for target, by in (*((owner, call) for owner, call in owners if owner), *values):
        node = target.node
        if isinstance(node, ast.Attribute) and isinstance(by.node, ast.Call | ast.BinOp):
            method = (target.where.function or "").rpartition(".")
            if (target.file.path, method[0]) in classes and method[2] != "__init__":
                yield node.attr, target.where


def _updated_from_parts(recordings: Mapping[int, Recording]) -> Iterator[dict[int, BatchNormUpdate]]:
    """Calls of update_bn that every rank made over other samples, and that left other statistics."""
    updates = on_each_rank(recordings, lambda recording: recording.events(BatchNormUpdate))
    for row in in_turn(updates):
        parts = [_samples(recordings[rank], update) for rank, update in row.items()]
        differ = differing({rank: update.digests for rank, update in row.items()})
        if len(row) < len(recordings) or not differ or not all(parts):
            continue
        exchanged = any(_is_exchanged(recordings[rank], update) for rank, update in row.items())
        if any(part != parts[0] for part in parts) and not exchanged:
            yield row


def _samples(recording: Recording, update: BatchNormUpdate) -> set[object]:
    """What it went over."""
    passes = [pass_ for pass_ in recording.passes if update.begin <= pass_.begin <= update.end]
    return {sample for pass_ in passes for sample in (pass_.indices or pass_.content)}


def _is_exchanged(recording: Recording, update: BatchNormUpdate) -> bool:
    """Whether ranks exchanged something afterwards, before the model was evaluated or saved."""
    uses = [pass_.begin for pass_ in recording.passes] + [save.begin for save in recording.saves]
    end = min((time for time in uses if time > update.end), default=math.inf)
    after = (it for it in recording.collectives if update.end < it.time < end)
    return any(not it.operation.endswith("barrier") for it in after)


def _differing(row: _Row) -> tuple[str, ...]:
    return differing({rank: buffers.digests for rank, buffers in row.items()})

import re
from collections.abc import Mapping

from ddpdoctor.blame.causes import GradientsMissing
from ddpdoctor.blame.wording import verb, who
from ddpdoctor.check import Evidence, Finding, Judgement, Passed, Subject, Where, reports
from ddpdoctor.frameworks import by_framework
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Backward, Forward, Wrapper
from ddpdoctor.text import by_state, listing, plural, ranks_phrase, shorten
from ddpdoctor.trace import Recording, Trace, TrainingStep, by_key, of_model, on_each_rank, shown_at
from ddpdoctor.trace.raised import indices_without_gradient, keys_of, last_lines, raised_as
from ddpdoctor.trace.recorded_job import HangCheck

_Names = Mapping[int, tuple[str, ...]]
_INDICES = re.compile(r"did not receive grad for rank (?P<rank>\d+): (?P<which>[^\n]+)")


class ParametersUnused(HangCheck):
    """A parameter got no gradient on some or all ranks.

    What it finds:
        Parameters of a wrapped module that took no part in a loss, on which ranks, by name; and the error in
        which it ends: "Expected to have finished reduction in the prior iteration". Also a loss without any
        connection to the wrapped module, on some ranks only: the others average with the next step of those ranks.

    Why it matters:
        DDP waits for the gradient of every parameter before it averages them. Where a parameter is left out on
        every rank, the next forward raises an error that names no parameter; where one rank leaves it out, the
        others wait for that rank until the timeout.

    Example:
        An auxiliary head that is only used while training on some batches:
            if batch.has_labels:
                loss = loss + self.aux(features).mean()

    Fix:
        Use every parameter in every step on every rank; a term of weight zero is enough:
            loss = loss + 0 * self.aux(features).mean()
        Freeze what is never used: parameter.requires_grad_(False), before the wrap. Or, where skipping it is
        intended: DistributedDataParallel(model, find_unused_parameters=True). TORCH_DISTRIBUTED_DEBUG=INFO prints the
        names of the parameters.
    """

    code = "DD204"
    title = "every parameter gets a gradient on every rank"
    fix_with = by_framework(
        "use them on every rank in every step; or, where skipping is intended:\n",
        lightning='Trainer(strategy="ddp_find_unused_parameters_true")',
        fabric="Fabric(strategy=DDPStrategy(find_unused_parameters=True))",
        transformers="TrainingArguments(..., ddp_find_unused_parameters=True)",
        accelerate="Accelerator("
        "kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])",
        ignite="model = idist.auto_model(model, find_unused_parameters=True)",
        ray='prepare_model(model, parallel_strategy_kwargs={"find_unused_parameters": True})',
    )
    raises = (
        r"(?s)Expected to have finished reduction(?!.*not compatible with static_graph)",
        r"LightningModule has parameters that were not used in producing the loss",  # in its place
    )
    explained_by = ("DD205", "DD222")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        raised = raised_as(trace, *self.raises)
        missing = {
            rank: names
            for rank, recording in recordings.items()
            if (names := _named(recording, raised.get(rank)) or _left_at_the_end(recording))
        }
        if raised:
            return self._unused(recordings, raised, missing)
        if missing:
            return [self._unused(recordings, {}, names) for names in _by_model(recordings, missing)]
        if unconnected := _unconnected(recordings):
            return [self._not_reached(*first) for first in unconnected]
        return super().examine_run(trace)

    def examine_ended(self, trace: Trace) -> Judgement:
        trace.training()
        trace.wrapped()
        return Passed("every parameter got a gradient, or find_unused_parameters took care of it")

    @reports(GradientsMissing)
    def _came_out_alone(self, cause: GradientsMissing) -> Finding:
        ranks, others = cause.culprits, cause.waiting
        return self.fail(
            f"{who(ranks)} finished the backward without a gradient for some parameters, and {who(others)} "
            f"{verb(others, 'waits', 'wait')} there for {verb(ranks, 'its', 'their')} part",
            why=f"DDP averages every gradient across all ranks. The backward of {who(ranks)} did not reach "
            f"every parameter, so nothing was averaged there and {verb(ranks, 'it', 'they')} went on, while "
            "the others wait up to the timeout of the process group.",
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(*self.raises)
        indices = [match for source in reason.sources for match in _INDICES.finditer(source.text)]
        ranks = {int(match["rank"]) for match in indices} | set(log_fields(reason)["ranks"])
        missing = " ".join(match["which"].strip() for match in indices[:1])
        which = f"parameters {shorten(missing)}" if missing else "some parameters"
        return self.fail(
            f"{ranks_phrase(ranks, 'a rank')} did not produce gradients for {which}",
            **log_fields(reason, ranks=ranks),
        )

    def _not_reached(self, wrapper: Wrapper, index: int, row: Mapping[int, Backward], count: int) -> Finding:
        first = next(iter(row.values()))
        return self.fail(
            f"the loss of {ranks_phrase(row)} in training step {index} does not depend on {wrapper.module}: "
            "its backward reached no wrapped parameter",
            why="The other ranks averaged gradients in this step, and their all-reduce met the next one of "
            f"{ranks_phrase(row)}. From then on ranks average gradients of different steps, and at the end some "
            "wait for an all-reduce that never comes.",
            fix="keep the loss connected where a batch holds nothing to learn from:\n"
            "loss = outputs.sum() * 0.0    # not torch.tensor(0.0, requires_grad=True)",
            where=first.at,
            evidence=(Evidence(f"so in {plural(count, 'recorded training step')}", tuple(row)),),
            about=of_model(wrapper),
        )

    def _unused(
        self, recordings: Mapping[int, Recording], raised: Mapping[int, Raised], missing: _Names
    ) -> Finding:
        ranks = tuple(sorted({*raised, *missing}))
        where = next((error.at for error in raised.values()), None) or _last_backward(recordings[ranks[0]])
        others = sorted(set(recordings) - set(ranks))
        return self.fail(
            f"{ranks_phrase(ranks)} did not produce gradients for {_counted(recordings, missing)}",
            why="DDP averages every gradient across all ranks. "
            + (
                f"{ranks_phrase(others).capitalize()} used these parameters, and must wait for "
                f"{ranks_phrase(ranks)}, up to the timeout of the process group."
                if others
                else "Their bucket was never complete, so it was not averaged, and the next forward stops."
            ),
            ranks=ranks,
            where=where,
            evidence=(
                *by_state({rank: _shown(missing.get(rank, ())) for rank in recordings}),
                *_gathered(recordings[ranks[0]]),
                *last_lines(raised),
            ),
            about=_models(recordings, missing),
        )


def _unconnected(recordings: Mapping[int, Recording]) -> list[tuple[Wrapper, int, dict[int, Backward], int]]:
    """Of each wrapper the first training step whose loss was connected with it on some ranks only.

    With the backwards of the ranks on which it was not, and how many recorded steps are like it.
    """
    steps = on_each_rank(recordings, lambda recording: recording.all_steps)
    wrappers = on_each_rank(recordings, lambda recording: recording.wrappers)
    rows = by_key(sorted(steps, key=lambda pair: pair[1].index), lambda step: step.index)
    unconnected = []
    for wrapper in {wrapper.index: wrapper for _, wrapper in wrappers}.values():
        missed = [(row, late) for row in rows if (late := _late_ranks(row, wrapper.index))]
        if missed:
            row, backwards = missed[0]
            unconnected.append((wrapper, next(iter(row.values())).index, backwards, len(missed)))
    return unconnected


def _late_ranks(row: Mapping[int, TrainingStep], wrapper: int) -> dict[int, Backward]:
    """The ranks whose backwards missed a wrapper that took part in this step, where other ranks did not miss it."""
    took_part = {rank: step for rank, step in row.items() if any(_arms(f, wrapper) for f in step.forwards)}
    late = {rank: step.backwards[-1] for rank, step in took_part.items() if _misses(step, wrapper)}
    joined = any(step.joined for step in took_part.values())
    return {} if joined or len(late) == len(took_part) else late


def _arms(forward: Forward, wrapper: int) -> bool:
    return forward.wrapper == wrapper and forward.grad and forward.synced and not forward.around


def _misses(step: TrainingStep, wrapper: int) -> bool:
    return bool(step.backwards) and all(wrapper in backward.missed for backward in step.backwards)


def _models(recordings: Mapping[int, Recording], missing: _Names) -> tuple[Subject, ...]:
    """The wrapped models that the parameters belong to."""
    names = {name for unused in missing.values() for name in unused}
    wrappers = {
        wrapper.index: wrapper
        for rank in missing
        for wrapper in recordings[rank].wrappers
        if any(parameter.key in names for parameter in wrapper.parameters)
    }
    return of_model(*wrappers.values())


def _by_model(recordings: Mapping[int, Recording], missing: _Names) -> list[dict[int, tuple[str, ...]]]:
    """The parameters of each wrapped model, by rank."""
    models = []
    wrappers = on_each_rank({rank: recordings[rank] for rank in missing}, lambda it: it.wrappers)
    for by_rank in by_key(wrappers, lambda wrapper: wrapper.index):
        held = {rank: {parameter.key for parameter in by_rank[rank].parameters} for rank in by_rank}
        unused = {rank: tuple(name for name in missing[rank] if name in held[rank]) for rank in by_rank}
        models.append({rank: names for rank, names in unused.items() if names})
    return [model for model in models if model]


def _named(recording: Recording, raised: Raised | None) -> tuple[str, ...]:
    """The parameters that an exception is about: by the gradients of the last step, or by DDP's own numbers."""
    if raised is None:
        return ()
    return _without_gradient(recording) or keys_of(recording, indices_without_gradient(raised.message))


def _left_at_the_end(recording: Recording) -> tuple[str, ...]:
    """Parameters without a gradient in a last step after which no forward came that would have raised.

    Where a forward did come after a step without it, the script took the gradient away once DDP had averaged it.
    """
    if recording.trailing and recording.trailing.forwards:
        return ()
    taken_away = {key for step in recording.steps[:-1] for key in _missing_in(recording, step)}
    return tuple(key for key in _without_gradient(recording) if key not in taken_away)


def _without_gradient(recording: Recording) -> tuple[str, ...]:
    return _missing_in(recording, recording.steps[-1]) if recording.steps else ()


def _missing_in(recording: Recording, step: TrainingStep) -> tuple[str, ...]:
    return tuple(key for wrapper in recording.wrappers for key in _missing(wrapper, step))


def _missing(wrapper: Wrapper, step: TrainingStep) -> list[str]:
    if wrapper.flags.get("find_unused_parameters") or wrapper.flags.get("static_graph"):
        return []
    through = [forward for forward in step.forwards if _arms(forward, wrapper.index)]
    gradients = {key: it for taken in step.optimizer_steps for key, it in (taken.gradients or {}).items()}
    of_wrapper = {key: gradients[key] for key in wrapper.trained if key in gradients}
    if not through or not any(of_wrapper.values()):
        return []
    return [key for key, digest in of_wrapper.items() if digest is None]


def _gathered(recording: Recording) -> tuple[Evidence, ...]:
    """The line at which its last step gathered features without their gradient: the loss may use these alone."""
    calls = recording.steps[-1].collectives if recording.steps else ()
    blind = (it.at for it in calls if "gather" in it.operation and it.requires_grad and not it.differentiable)
    return shown_at("gathered, without their gradient,", next(blind, None))


def _counted(recordings: Mapping[int, Recording], missing: _Names) -> str:
    if not missing:
        return "some parameters"
    rank, names = max(missing.items(), key=lambda item: len(item[1]))
    total = sum(len(wrapper.trained) for wrapper in recordings[rank].wrappers)
    return f"{len(names)} of {plural(total, 'parameter')}: {listing(names)}"


def _shown(names: tuple[str, ...]) -> str:
    return f"no gradient: {listing(names, 8)}" if names else "no parameter without a gradient was seen"


def _last_backward(recording: Recording) -> Where | None:
    backwards = recording.steps[-1].backwards if recording.steps else ()
    return backwards[-1].at if backwards else None

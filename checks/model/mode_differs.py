from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.check import Check, Finding, Judgement, Passed
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import by_state, listing, plural, ranks_phrase
from ddpdoctor.trace import Trace, TrainingStep, grouped, of_model, shown_at
from ddpdoctor.trace.joint_training import training_steps
from ddpdoctor.trace.sync import Group, replicas


class ModeDiffers(Check):
    """A model trains in eval mode on some ranks and in train mode on the others.

    What it finds:
        Training steps in which dropout, batch norm or another layer that acts by its mode is in eval mode on some
        ranks only, and the line that set that mode: most often a rank that evaluates and does not call train() again.
        A mode that is the same on every rank, such as that of frozen batch norm, is left alone, and so is an
        evaluation after which the mode is set back.

    Why it matters:
        In eval mode dropout does nothing, and batch norm uses its running averages and does not update them. The
        ranks average gradients of different computations, with no error. Where it is rank 0, the averages that DDP
        sends to the other ranks, and that are saved, stay what they were.

    Example:
        if dist.get_rank() == 0:
            model.eval()
            evaluate(model.module, held_out)      # rank 0 goes on in eval mode

    Fix:
        Set the mode where training begins and where it goes on, on every rank:
            model.train()
            for x, y in loader:
    """

    code = "DD231"
    title = "the model is in one mode on every rank"
    explained_by = ("DD214",)

    def examine_run(self, trace: Trace) -> Judgement:
        compared = [modes for group in replicas(trace) for modes in _modes(group)]
        self.require(compared, "no wrapped model has a layer that acts by its mode")
        unequal = [modes for modes in compared if modes.ranks]
        models = grouped(unequal, lambda modes: (tuple(modes.forwards), modes.wrapper))
        return [self._differ(steps, len(compared)) for steps in models] or Passed(
            f"the model was in one mode on every rank in {plural(len(compared), 'training step')}"
        )

    def _differ(self, steps: "list[Modes]", compared: int) -> Finding:
        first = steps[0]
        forward = first.forwards[first.ranks[0]]
        wrapper = first.group[first.ranks[0]].wrapper(first.wrapper)
        model = wrapper.module if wrapper else "the model"
        part = "" if forward.evaluating == ("",) else f"{listing(first.parts)} of "
        return self.fail(
            f"{part}{model} trains in eval mode on {ranks_phrase(first.ranks)} only, from step {first.index} on",
            ranks=first.ranks,
            where=forward.eval_at or forward.at,
            evidence=(
                *by_state({rank: _state(it) for rank, it in first.forwards.items()}),
                *shown_at(f"so in {len(steps)} of {plural(compared, 'training step')}; trains", forward.at),
            ),
            about=of_model(wrapper) if wrapper else (),
        )


@dataclass(frozen=True)
class Modes:
    """The forward of a wrapped model that led to the backward of a training step, on each rank."""

    index: int
    group: Group
    wrapper: int
    forwards: Mapping[int, Forward]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those on which something is in eval mode that is not on another."""
        return tuple(rank for rank in self.forwards if self._beside(rank))

    @property
    def parts(self) -> list[str]:
        """The modules that are, on the first of them."""
        return self._beside(self.ranks[0])

    def _beside(self, rank: int) -> list[str]:
        everywhere = set.intersection(*(_parts(forward) for forward in self.forwards.values()))
        return sorted(_parts(self.forwards[rank]) - everywhere)


def _parts(forward: Forward) -> set[str]:
    return set(forward.evaluating or ())


def _state(forward: Forward) -> str:
    if not forward.evaluating:
        return "in train mode"
    whole = forward.evaluating == ("",)
    return "in eval mode" if whole else f"{listing(forward.evaluating)} in eval mode, the rest in train mode"


def _modes(group: Group) -> Iterator[Modes]:
    for index, row in training_steps(group):
        if any(step.joined for step in row.values()):
            continue
        last = {rank: _last_forwards(step) for rank, step in row.items()}
        for wrapper in sorted(set.intersection(*(set(forwards) for forwards in last.values()))):
            yield Modes(index, group, wrapper, {rank: forwards[wrapper] for rank, forwards in last.items()})


def _last_forwards(step: TrainingStep) -> dict[int, Forward]:
    """The last forward of each wrapper before the last backward: what came before may have been an evaluation."""
    return {
        it.wrapper: it
        for it in step.forwards
        if it.grad and not it.around and it.evaluating is not None and it.time < step.last_backward
    }

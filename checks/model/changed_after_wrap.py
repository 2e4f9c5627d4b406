from ddpdoctor.check import Check, Findings, NotMeasured, Passed
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import by_state, listing, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_key, of_model, on_each_rank, shown_at
from ddpdoctor.trace.source_causes import part_assigned, unfreezing
from ddpdoctor.trace.sync import MissedReduction, Unaveraged, finding_fields, unaveraged_updates


class ChangedAfterWrap(Check):
    """Parameters were replaced, added or converted after the wrap.

    What it finds:
        Trainable parameters inside a wrapped module that were not there, or were frozen, when DDP was constructed;
        and forwards through the wrapper whose backward all-reduced nothing, although every parameter got a
        gradient: the module was moved or converted to another type and back, which drops the reducer's hooks.

    Why it matters:
        DDP registers its hooks once, in its constructor. What comes later is averaged by nobody: each rank trains its
        own copy. Without find_unused_parameters the next forward raises "Expected to have finished reduction"; with
        it, there is no error.

    Example:
        The head is exchanged for another task after the wrap:
            model = DistributedDataParallel(net)
            model.module.head = nn.Linear(512, 10)

    Fix:
        Change the module first, wrap it last:
            net.head = nn.Linear(512, 10)
            model = DistributedDataParallel(net.to(device))     # again, each time that parameters were unfrozen
    """

    code = "DD205"
    title = "wrapped modules keep their parameters"

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.wrapped()
        unknown = by_key(on_each_rank(recordings, _with_unknown), lambda forward: forward.wrapper)
        for forwards in unknown:
            rank, first = next(iter(forwards.items()))
            wrapper = recordings[rank].wrapper(first.wrapper) or recordings[rank].wrappers[0]
            frozen = {parameter.key for parameter in wrapper.parameters if not parameter.requires_grad}
            unfrozen = frozen.issuperset(first.unknown)
            word = "unfrozen" if unfrozen else "new"
            shown = by_state({rank: f"{word}: {listing(it.unknown, 8)}" for rank, it in forwards.items()})
            script = recordings[rank].script
            given = unfreezing(script) if unfrozen else part_assigned(script, first.unknown)
            wrapped = shown_at("wrapped", wrapper.at if given else None)
            yield self.fail(
                f"{wrapper.module} has {plural(len(first.unknown), 'parameter')} that DistributedDataParallel "
                f"does not know on {ranks_phrase(forwards)}: {listing(first.unknown)}",
                where=given or wrapper.at or first.at,
                evidence=(*shown, *wrapped, *shown_at("used", first.at)),
                about=of_model(wrapper),
            )
        if unknown:
            return
        for updates in _without_hooks(trace):
            update = updates[0]
            fields, forward = finding_fields(updates, update), update.first.forward
            fields["evidence"] = (*fields["evidence"], *shown_at("used", forward.at if forward else None))
            yield self.fail(
                f"DistributedDataParallel's hooks no longer fire for {update.wrapper.module}'s gradients on "
                f"{ranks_phrase(update.by_rank)}: {len(update.differing)} of {update.compared} differ between ranks",
                why="The forward went through the wrapper and every parameter got a gradient, and yet nothing was "
                "all-reduced. Moving or converting a module after the wrap drops DDP's hooks.",
                **{**fields, "where": update.wrapper.at or fields["where"]},
            )
        yield Passed("no parameter of a wrapped module was replaced, added or converted after the wrap")


def _with_unknown(recording: Recording) -> list[Forward]:
    """The forwards through wrappers that met parameters which their wrapper does not know."""
    return [it for it in recording.forwards if it.unknown and it.grad and not it.around]


def _without_hooks(trace: Trace) -> list[list[Unaveraged]]:
    """Updates after backwards in which hooks did not fire, by line; none where a parameter or a hook explains it."""
    try:
        lines = unaveraged_updates(trace, MissedReduction.HOOKS_LOST)
    except NotMeasured:
        return []
    certain = (
        [update for update in updates if not update.wrapper.hook and not _without_gradient(update)]
        for updates in lines
    )
    return [updates for updates in certain if updates]


def _without_gradient(unaveraged: Unaveraged) -> bool:
    """Whether a parameter of the wrapper got none, which leaves its bucket unreduced as well (DD204)."""
    gradients = [step.gradients or {} for step in unaveraged.update.taken.values()]
    return any(digests.get(key, "") is None for digests in gradients for key in unaveraged.wrapper.trained)

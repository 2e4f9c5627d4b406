import math
from collections.abc import Mapping, Sequence

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.recorder.events.training import CopyForward
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, grouped, in_turn, of_model, on_each_rank, shown_at
from ddpdoctor.trace.source_causes import guarded_update
from ddpdoctor.trace.sync import Group, differing, replicas
from ddpdoctor.trace.weights import Difference, first_difference

_AVERAGED_APART = (
    "The trained weights are equal. Their averages differ because ranks made the copy before the wrap, or did not "
    "update it alike."
)
_DRAWN_APART = (
    "The trained weights are equal, and the copy never changes: each rank drew or loaded its weights by itself, so "
    "the ranks train against different references."
)
_FREEZE = (
    "copy.deepcopy(model.module)    # after the wrap, in its place; or broadcast its parameters from rank 0"
)


class EmaDiverges(Check):
    """A moving average of the weights is not the same on every rank.

    What it finds:
        An unwrapped copy of the model, such as an exponential moving average of its weights, that several ranks
        evaluate with and whose values differ between them although the trained weights agree; and weights that one
        rank alone took from such a copy. Copies of earlier weights that ranks keep at different times, opponents in
        self-play for instance, are left alone.

    Why it matters:
        A copy that only rank 0 updates, or that was made before DDP had made the weights equal, is another model on
        each rank. Metrics over all ranks mix them. Written back on one rank, it makes the replicas differ for good.

    Example:
        The copy is updated by rank 0, and every rank evaluates with its own:
            if rank == 0:
                ema.update(model.module)
            accuracy = evaluate(ema.module, shard_of_this_rank)

    Fix:
        Make the copy after the wrap and update it on every rank: equal weights give equal averages. Write it back on
        all ranks or on none.
    """

    code = "DD226"
    title = "averaged copies of the weights are equal on every rank"
    explained_by = ("DD201", "DD202", "DD203", "DD204", "DD205", "DD207", "DD208", "DD225", "DD227")

    def examine_run(self, trace: Trace) -> Judgement:
        compared = 0
        findings: list[Finding] = []
        for group in replicas(trace):
            first = first_difference(group)
            if first and first.before and _took_copy(group, first):
                return self.fail(
                    f"only {ranks_phrase(first.moved)} took the weights of an averaged copy, before step "
                    f"{first.update.index}",
                    where=first.where,
                    evidence=(Evidence(f"differ since: {listing(first.keys)}", first.ranks),),
                )
            since = min(step.time for step in first.update.taken.values()) if first else math.inf
            for rows in _evaluated_together(group):
                compared += len(rows)
                unequal = [
                    row
                    for row in rows
                    if _differing(row)
                    and min(copy.time for copy in row.values()) <= since
                    and any(_is_average(group[rank], copy) for rank, copy in row.items())
                ]
                findings += [self._differ(group, row, _never_changes(rows)) for row in unequal[:1]]
        self.require(compared, "no two ranks evaluated a copy of the model")
        return findings or Passed(f"copies of the model were equal in {plural(compared, 'evaluation')}")

    def _differ(self, group: Group, row: Mapping[int, CopyForward], is_frozen: bool) -> Finding:
        rank, first = next(iter(row.items()))
        unequal, wrapper = _differing(row), group[rank].wrapper(first.wrapper) or group[rank].wrappers[0]
        weights = [key for key in unequal if key in {parameter.key for parameter in wrapper.parameters}]
        finding = self.fail if weights else self.info
        update = guarded_update(group[rank].script, group) if weights else None
        return finding(
            f"{ranks_phrase(row)} evaluate {'a frozen' if is_frozen else 'an averaged'} copy of {wrapper.module} that "
            "differs between them: " + listing(weights or unequal),
            why=(_DRAWN_APART if is_frozen else _AVERAGED_APART)
            if weights
            else "Its weights are equal, and its buffers come from each rank's own batches.",
            **({"fix": _FREEZE} if is_frozen else {}),
            ranks=tuple(row),
            where=update or first.at,
            evidence=shown_at("evaluated", first.at if update else None)
            + tuple(
                Evidence(f"{key}: {len({member.digests[key] for member in row.values()})} different values")
                for key in (weights or unequal)[:4]
            ),
            about=of_model(wrapper),
        )


def _never_changes(rows: Sequence[Mapping[int, CopyForward]]) -> bool:
    """Whether a copy holds the same in several evaluations."""
    return len(rows) > 1 and all(
        row[rank].digests == copy.digests for row in rows for rank, copy in rows[0].items()
    )


def _evaluated_together(group: Group) -> list[list[dict[int, CopyForward]]]:
    """By copy, the evaluations of it that several ranks did."""
    copies = on_each_rank(group, lambda recording: recording.events(CopyForward))
    by_copy = grouped(copies, lambda pair: (pair[1].wrapper, pair[1].number))
    return [list(in_turn(evaluations)) for evaluations in by_copy]


def _differing(row: Mapping[int, CopyForward]) -> tuple[str, ...]:
    return differing({rank: copy.digests for rank, copy in row.items()})


def _is_average(recording: Recording, copy: CopyForward) -> bool:
    """Whether a copy holds something that the model never held, as an average does and a snapshot does not."""
    before = [step for step in recording.steps if step.time < copy.time]
    updates = [update for step in before for update in step.optimizer_steps]
    complete = len(before) == 1 + max((step.index for step in before), default=-1)
    if complete and all(update.after is not None for update in updates):
        wrapped = [wrapper.digests for wrapper in recording.wrappers if wrapper.index == copy.wrapper]
        return not any(_holds(copy, held) for held in (*wrapped, *(update.after or {} for update in updates)))
    copies = [shadow for shadow in recording.events(CopyForward) if shadow.wrapper == copy.wrapper]
    states = [shadow.digests for shadow in copies if shadow.number == copy.number]
    if len(states) > 1:
        return any(state != states[0] for state in states) and not _is_loaded(recording, copy)
    return len({shadow.number for shadow in copies}) == 1


def _holds(copy: CopyForward, weights: Mapping[str, str]) -> bool:
    common = copy.digests.keys() & weights.keys()
    return bool(common) and all(copy.digests[key] == weights[key] for key in common)


def _is_loaded(recording: Recording, copy: CopyForward) -> bool:
    """Whether such a copy takes whole states of the model, from time to time."""
    kinds = {wrapper.module for wrapper in recording.wrappers if wrapper.index == copy.wrapper}
    began = min((step.time for step in recording.steps), default=0.0)
    return any(
        load.kind == "module" and load.wrapper is None and load.name in kinds and load.time > began
        for load in recording.state_loads
    )


def _took_copy(group: Group, first: Difference) -> bool:
    """Whether some ranks, and not all, hold exactly what a copy of theirs held."""
    if not 0 < len(first.moved) < len(group):
        return False
    return all(
        any(
            all(copy.digests.get(it) == (first.update.taken[rank].before or {}).get(it) for it in first.keys)
            for copy in group[rank].events(CopyForward)
        )
        for rank in first.moved
    )

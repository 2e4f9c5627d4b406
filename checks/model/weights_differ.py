from collections.abc import Mapping
from typing import Any

from ddpdoctor.blame.wording import verb
from ddpdoctor.check import REINSTALL_TORCH, Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.recorder.events.training import Wrapper
from ddpdoctor.text import by_state, listing, plural, quote, ranks_phrase
from ddpdoctor.trace import Trace, by_value, of_model
from ddpdoctor.trace.joint_training import restored_alike
from ddpdoctor.trace.sync import Group, replicas, updates, weights_are_made_equal
from ddpdoctor.trace.weights import (
    Difference,
    ForwardDifference,
    differences,
    differences_at_forwards,
    parts_not_sent,
)
from ddpdoctor.unreached.values import weights_set_apart

_SEND = (
    "change weights before the wrap, which gives every rank those of rank 0; or afterwards on all ranks:\n"
    "for parameter in model.parameters():\n    dist.broadcast(parameter.data, src=0)"
)
_AVERAGE = (
    "loss.backward()    # through the wrapper, which averages; or average them before the update:\n"
    "for parameter in model.parameters():\n"
    "    dist.all_reduce(parameter.grad)\n"
    "    parameter.grad /= dist.get_world_size()"
)
_REDUCE = (
    "work = dist.all_reduce(bucket.buffer(), async_op=True)    # in the hook\n"
    "return work.get_future().then(lambda done: done.value()[0] / dist.get_world_size())"
)
_AVERAGE_AT_INTERVALS = (
    "averager = PeriodicModelAverager(period=8, warmup_steps=start_localSGD_iter)\n"
    "averager.average_parameters(model.parameters())    # after every optimizer.step()"
)
_BY_HOOK = "The gradients of this step were not the same on every rank: DDP leaves averaging to the hook {}."
_TAKEN_BY_GRAD = (
    "torch.autograd.grad took the gradients, and DDP's hooks do not run in it, so they were not averaged."
)


class WeightsDiffer(Check):
    """The weights of the replicas differ.

    What it finds:
        Ranks whose weights differ from rank 0's, bit by bit: the first tensor, the first element and both values.
        In the live group, replicas built from different seeds, after DDP's constructor and after optimizer steps
        with different data; in a training run, the step from which weights differ, the ranks whose weights
        changed outside of an update, and the torch.autograd.grad that took gradients past DDP's hooks.

    Why it matters:
        DDP averages gradients and never weights. Replicas that differ once stay different, each gradient is taken
        at another point, and what rank 0 saves is a model that no one trained. No error is raised, and the loss
        of each rank looks sound.

    Example:
        A layer is re-initialised after the wrap, on every rank from its own random numbers:
            model = DistributedDataParallel(model)
            model.module.head.reset_parameters()

    Fix:
        Change weights before the wrap, which gives every rank those of rank 0; or after it on all ranks alike, and
        broadcast what was drawn at random. Where nothing of the kind was done, suspect the hardware.
    """

    code = "DD206"
    title = "every rank has the same weights"
    measurements = ("weights",)
    explained_by = (
        *("DD201", "DD202", "DD203", "DD204", "DD205", "DD207", "DD208", "DD213", "DD214", "DD219"),
        *("DD222", "DD225", "DD226", "DD227", "DD228", "DD302"),
    )
    unreached = (weights_set_apart, "each rank would set {what} by itself: {why}")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        ranks.require_right_answers()
        values = ranks.values("weights")
        self.require(len(values) != 1, "needs at least two ranks")
        unequal = {rank: value["difference"] for rank, value in values.items() if value["difference"]}
        if unequal:
            first = next(iter(unequal.values()))
            return self.fail(
                f"the weights of {ranks_phrase(unequal)} differ from rank 0's {first['when']}: "
                f"{first['tensor']}[{first['element']}] by {abs(first['own'] - first['rank_0']):.3g}",
                fix=REINSTALL_TORCH,
                evidence=by_state(unequal, lambda value: f"{_shown(value)} ({value['when']})"),
            )
        return Passed(
            f"DDP makes {len(values)} replicas from different seeds equal to the bit "
            f"({plural(values[0]['tensors'], 'tensor')}), and they stay so"
        )

    def examine_run(self, trace: Trace) -> Judgement:
        if trace.bundled or not any(rank.recording for rank in trace.ranks):
            return self._examine_trainer(trace)
        return self._examine_recorded(trace)

    def _examine_recorded(self, trace: Trace) -> Judgement:
        recordings = trace.recordings()
        if not any(recording.step_count for recording in recordings.values()):
            # The script updates weights itself, without an optimizer of torch.
            by_hand = [self._differ_at_forward(first) for first in differences_at_forwards(recordings)]
            if by_hand:
                return by_hand
        compared: set[int] = set()
        apart: list[Finding] = []
        for group in replicas(trace):
            apart += [self._not_sent(group, first) for first in parts_not_sent(group)]
            if weights_are_made_equal(group):
                continue
            apart += [self._differ_in_step(group, wrapper, first) for wrapper, first in differences(group)]
            compared |= {it.index for it in updates(group) if all(t.after for t in it.taken.values())}
        self.require(compared or apart, "no step was seen after which weights have to be equal")
        return apart or Passed(f"weights are equal to the bit after {plural(len(compared), 'training step')}")

    def _examine_trainer(self, trace: Trace) -> Judgement:
        digests, differences = trace.values("weights"), trace.values("difference")
        self.require(len(digests) != 1, "needs at least two ranks")
        unequal = {rank: differences[rank] for rank, digest in digests.items() if digest != digests[0]}
        if unequal:
            return self.fail(
                f"the weights of {ranks_phrase(unequal)} differ from rank 0's after the training run",
                why="Every rank started from rank 0's weights and took steps with the same averaged gradients, "
                "so they have to be equal to the bit. A gradient or a broadcast did not arrive as it was sent, "
                "or a rank computed a different result from equal numbers.",
                fix="ddpdoctor check --select group    # shows which collective returns a wrong result",
                ranks=tuple(unequal),
                evidence=(
                    *(Evidence(_shown(value), (rank,)) for rank, value in unequal.items()),
                    *_digests("weights", digests),
                ),
            )
        return Passed(f"after the training run, the weights of {ranks_phrase(digests)} are equal to the bit")

    def _differ_in_step(self, group: Group, wrapper: Wrapper | None, first: Difference) -> Finding:
        index = first.update.index
        count = len(next(iter(first.update.taken.values())).before or ())
        moved = 0 < len(first.moved) < len(group)
        hooked = wrapper if wrapper and wrapper.hook and first.is_by_gradients else None
        fix = _AVERAGE if first.call or first.is_by_gradients else _SEND
        return self.fail(
            (
                f"{ranks_phrase(first.moved)} changed its weights by itself before step {index}: "
                if moved
                else f"weights differ between ranks {'before' if first.before else 'after'} step {index}: "
            )
            + f"{len(first.keys)} of {plural(count, 'parameter')}, {listing(first.keys, 2)}",
            why=(_BY_HOOK.format(hooked.hook) if hooked else _cause(first))
            + " DDP averages gradients and never weights, so replicas that differ once stay different.",
            fix=_fix_of_hook(hooked) if hooked else fix,
            ranks=first.ranks,
            where=(hooked.hooked_at if hooked else None) or first.where,
            evidence=_states(first),
            about=of_model(wrapper) if wrapper else (),
            explained_by=() if restored_alike(group) else ("DD405",),
        )

    def _differ_at_forward(self, first: ForwardDifference) -> Finding:
        row, key = first.by_rank, first.keys[0]
        forward = next(iter(row.values()))
        return self.fail(
            f"weights of {first.wrapper.module} differ between ranks before training forward {forward.number}: "
            f"{len(first.keys)} of {plural(len(forward.digests), 'parameter')}, {listing(first.keys, 2)}",
            why=(
                _TAKEN_BY_GRAD if first.call else "No optimizer of torch changed them, the script itself did."
            )
            + " DDP averages the gradients of a backward and never weights, so each rank trains a different model.",
            fix=_AVERAGE,
            where=first.call.at if first.call else forward.at,
            evidence=_digests(key, {rank: event.digests[key] for rank, event in row.items()}),
            about=of_model(first.wrapper),
        )

    def _not_sent(self, group: Group, first: ForwardDifference) -> Finding:
        key, row = first.keys[0], first.by_rank
        # The first that holds it counts.
        owners = {rank: it for rank, of in group.items() for it in reversed(of.optimizers) if key in it.keys}
        parameters = plural(len(next(iter(row.values())).digests), "parameter")
        return self.fail(
            f"weights that {ranks_phrase(owners)} alone {verb(owners, 'updates', 'update')} stay different on the "
            f"other ranks: {len(first.keys)} of {parameters}, {listing(first.keys, 2)}",
            why="The optimizer of each rank holds a part of the parameters, and the script sends its results to "
            "the others. It does not send these, so each rank trains a different model.",
            fix="for owner, part in enumerate(parts):\n    for parameter in part:    # all of them\n"
            "        dist.broadcast(parameter.data, src=owner)",
            ranks=tuple(owners),
            where=next(iter(owners.values())).at,
            evidence=_digests(key, {rank: event.digests[key] for rank, event in row.items()}),
            about=of_model(first.wrapper),
        )


def _fix_of_hook(wrapper: Wrapper) -> str:
    return _AVERAGE_AT_INTERVALS if "local" in (wrapper.hook or "").lower() else _REDUCE


def _cause(first: Difference) -> str:
    if first.load:
        return f"A load_state_dict into {quote(first.load.name)} came after the wrap, and not alike on all ranks."
    if first.call:
        return _TAKEN_BY_GRAD
    if first.before:
        return "Something other than an update changed them after the wrap: a load, a new initialisation, a copy."
    if first.is_by_gradients and first.sent_to_one:
        return f"reduce gives the sum of the gradients to rank {first.sent_to_one.peer} alone."
    if first.is_by_gradients:
        return "The gradients of this step were not the same on every rank."
    return "The gradients of this step were equal, so the optimizers hold unequal state."


def _states(first: Difference) -> tuple[Evidence, ...]:
    """The first differing parameter's digest by rank, equal ones once."""
    key = first.keys[0]
    weights = first.update.before if first.before else first.update.after
    return _digests(key, {rank: str((digests or {})[key]) for rank, digests in weights.items()})


def _digests(name: str, digests: Mapping[int, str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"{name} {digest[:12]}", ranks) for digest, ranks in by_value(digests).items())


def _shown(element: Mapping[str, Any] | None) -> str:
    if element is None:
        return "the broadcast of rank 0's weights shows no difference, and their checksums do"
    name = f"{element['tensor']}[{element['element']}]"
    return f"{name} is {element['own']!r}, and {element['rank_0']!r} on rank 0"

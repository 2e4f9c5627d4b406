from collections import Counter
from collections.abc import Sequence

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Kind, NotMeasured, Passed
from ddpdoctor.text import listing, plural
from ddpdoctor.trace import Trace, grouped, made_at, on_each_rank, shown_at
from ddpdoctor.trace.sync import Group, Update, replicas, updates, weights_are_made_equal
from ddpdoctor.trace.weights import sharded_keys


class ParametersOutsideDdp(Check):
    """The optimizer trains parameters outside of DistributedDataParallel.

    What it finds:
        Parameters of an optimizer that belong to no wrapped module, that every rank has, and whose gradients differ
        between ranks: a learnable loss, a temperature, a second network, a head kept beside the model. Experts and
        parts of a head that each rank holds by design are left alone, where ranks exchange activations for them.

    Why it matters:
        DDP averages what it was given. The rest is trained by each rank on its own data, drifts apart, and pulls the
        wrapped part along, whose gradients run through it. The checkpoint holds rank 0's.

    Example:
        A loss that has weights:
            model = DistributedDataParallel(net)
            centers = CenterLoss(classes, 128)
            optimizer = SGD([*model.parameters(), *centers.parameters()], lr=0.1)

    Fix:
        Wrap it as well: centers = DistributedDataParallel(centers). Or make it a part of the module that is wrapped,
        and use it inside forward.
    """

    code = "DD203"
    title = "every trained parameter is inside a DDP wrapper"
    explained_by = ("DD205", "DD225")

    def examine_run(self, trace: Trace) -> Judgement:
        groups = replicas(trace)
        if not any(recording.wrappers for group in groups for recording in group.values()):
            raise NotMeasured("nothing was wrapped in DistributedDataParallel")
        outside = [self._outside(group, apart) for group in groups for apart in _trained_apart(group)]
        return outside or Passed("no parameter outside a wrapper was trained on different data by the ranks")

    def _outside(self, group: Group, apart: Sequence[tuple[Update, tuple[str, ...]]]) -> Finding:
        """Of the parameters of one optimizer."""
        counts = Counter(key for _, keys in apart for key in keys)
        first = apart[0][0]
        return self.fail(
            f"the optimizer trains {plural(len(counts), 'parameter')} that no DistributedDataParallel synchronises: "
            + listing(tuple(counts)),
            ranks=tuple(first.taken),
            where=made_at(group, first.optimizer) or first.where,
            evidence=tuple(
                Evidence(f"{key}: its gradient differs between ranks in {plural(count, 'update')}")
                for key, count in list(counts.items())[:4]
            )
            + shown_at("updated", first.where),
            about=Kind.PARAMETER.of(*counts),
        )


def _trained_apart(group: Group) -> list[list[tuple[Update, tuple[str, ...]]]]:
    """By optimizer, its updates in which gradients of parameters outside of every wrapper differed, and of which."""
    parts = sharded_keys(group)
    optimizers = on_each_rank(group, lambda recording: recording.optimizers)
    outside = {(held.index, key) for _, held in optimizers for key in held.outside if key not in parts}
    if not outside or weights_are_made_equal(group):
        return []
    apart = [
        (update, tuple(key for key in update.differing_gradients if (update.optimizer, key) in outside))
        for update in updates(group)
    ]
    return grouped((pair for pair in apart if pair[1]), lambda pair: pair[0].optimizer)

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Kind, NotMeasured, Passed, Where
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.recorder.patches.backward import Leaf
from ddpdoctor.text import listing, plural
from ddpdoctor.trace import Trace, grouped, in_turn, made_at, on_each_rank, shown_at
from ddpdoctor.trace.lines import program_of
from ddpdoctor.trace.sync import Group, Update, replicas, updates, weights_are_made_equal
from ddpdoctor.trace.weights import exchange_activations, sharded_keys


class ParametersOutsideDdp(Check):
    """The optimizer trains parameters outside of DistributedDataParallel.

    What it finds:
        Parameters of an optimizer that belong to no wrapped module, that every rank has, and whose gradients differ
        between ranks: a learnable loss, a temperature, a second network, a head kept beside the model. And tensors
        that the script updates itself, without an optimizer, and that were equal when training began. Experts and
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
        outside += [self._by_hand(group, *it) for group in groups for it in _updated_by_hand(group)]
        return outside or Passed("no parameter outside a wrapper was trained on different data by the ranks")

    def _by_hand(self, group: Group, row: Mapping[int, Leaf], step: int) -> Finding:
        leaf = next(iter(row.values()))
        return self.fail(
            f"the script updates {leaf.name} itself, and no DistributedDataParallel synchronises it: it differs "
            f"between ranks from step {step} on",
            fix=f"dist.all_reduce({leaf.name}.grad)    # before the update\n{leaf.name}.grad /= dist.get_world_size()",
            ranks=tuple(row),
            where=_changed_at(group, leaf) or leaf.at,
            evidence=tuple(Evidence(f"{leaf.name} {it.digest}", (rank,)) for rank, it in row.items()),
            about=Kind.PARAMETER.of(leaf.name),
        )

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


def _updated_by_hand(group: Group) -> Iterator[tuple[Mapping[int, Leaf], int]]:
    """Tensors outside of wrappers and optimizers that were equal on every rank in the first step and differ later,
    each with the training step from which they do."""
    if weights_are_made_equal(group) or exchange_activations(group):
        return
    leaves = on_each_rank(group, lambda recording: recording.events(Leaf))
    forwards = on_each_rank(group, lambda recording: recording.events(Forward))
    # What has a row for each sample of a batch is changed with them, as an input that is perturbed.
    of_samples = {(forward.batch,) for _, forward in forwards}
    for name in dict.fromkeys(leaf.name for _, leaf in leaves):
        rows = list(in_turn((rank, leaf) for rank, leaf in leaves if leaf.name == name))
        shapes = {leaf.shape[:1] for row in rows for leaf in row.values()}
        if not shapes.isdisjoint(of_samples) or any(len(row) < len(group) for row in rows):
            continue
        differs = [len({leaf.digest for leaf in row.values()}) > 1 for row in rows]
        if True in differs and not differs[0]:
            row = rows[differs.index(True)]
            yield row, next(iter(row.values())).step


def _changed_at(group: Group, leaf: Leaf) -> Where | None:
    """A line that changes a tensor in place by its variable, or puts another there by its gradient."""
    if leaf.at is None:
        return None
    attribute = "." + leaf.name.rpartition(".")[2]  # of an object that may go by another name there
    for file in program_of(leaf.at, group).files.values():
        for node in file.scopes:
            changed: list[ast.expr] = []
            if isinstance(node, ast.AugAssign):
                changed = [node.target]
            elif isinstance(node, ast.Assign) and ".grad" in ast.unparse(node.value):
                changed = node.targets
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                function = node.value.func
                in_place = isinstance(function, ast.Attribute) and function.attr.endswith("_")
                changed = [function.value] if in_place and isinstance(function, ast.Attribute) else []
            names = [ast.unparse(target).removesuffix(".data") for target in changed]
            if isinstance(node, ast.stmt) and any(
                name == leaf.name or ("." in leaf.name and name.endswith(attribute)) for name in names
            ):
                return file.where(node)
    return None


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

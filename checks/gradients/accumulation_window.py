import ast
from collections import Counter
from collections.abc import Sequence

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, NotMeasured, Passed, Where
from ddpdoctor.frameworks import by_framework
from ddpdoctor.program.files import Function, lines, own_nodes, read
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, TrainingStep
from ddpdoctor.trace.data import Pass

_LEAVING = (ast.Break, ast.Return, ast.Continue, ast.Raise)
"""Statements with which a loop may leave out the batches of a last, shorter window."""


class AccumulationWindow(Check):
    """The number of accumulated micro-batches is not the number that the loss is divided by.

    What it finds:
        Updates over more or fewer micro-batches than the number by which each loss was divided: a shorter last
        window, one that carries the rest of the epoch before, and micro-batches after the last update whose
        gradients nobody used.

    Why it matters:
        The gradient of such a window is too small or too large by the ratio, in every epoch. Samples of the rest are
        added to the next update, or dropped where zero_grad() comes before it. With few batches in an epoch the
        effect is large.

    Example:
        Ten batches in windows of four, and the last two are left to the next epoch:
            loss = criterion(model(x), y) / 4
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step(); optimizer.zero_grad()

    Fix:
        End the last window with the epoch, and divide by its true length:
            start = i - i % accumulate
            length = min(accumulate, len(loader) - start)
            (criterion(model(x), y) / length).backward()
            if (i + 1) % accumulate == 0 or i + 1 == len(loader):
                optimizer.step()
    """

    code = "DD210"
    title = "every update divides by the micro-batches it sums"
    fix_with = by_framework(
        accelerate="plugin = GradientAccumulationPlugin(num_steps=N, sync_with_dataloader=False)\n"
        "accelerator = Accelerator(gradient_accumulation_plugin=plugin)    # the last window ends in the next epoch",
    )
    explained_by = ("DD106", "DD225", "DD202")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = {rank: recording for rank, recording in trace.training().items() if recording.steps}
        divided = {rank: _divisor(recording.steps) for rank, recording in recordings.items()}
        self.require(any(divided.values()), "no loss was divided by a number of micro-batches")
        ended = {rank.rank for rank in trace.ranks if rank.finished}
        looked = {rank: _wrong(own, divided[rank], rank in ended) for rank, own in recordings.items()}
        if wrong := tuple(rank for rank, windows in looked.items() if windows):
            rank = wrong[0]
            return self._uneven(wrong, recordings[rank], looked[rank], divided[rank] or 1)
        if any(map(_is_cut_short, recordings.values())):
            left = {rank: _left_over(own, divided[rank]) for rank, own in recordings.items()}
            (rank, pass_), *_ = left.items()
            if pass_ and all(left.values()):
                by = divided[rank] or 1
                batches = plural((pass_.batches or 0) % by, "micro-batch")
                return self.warn(
                    f"an epoch of {pass_.batches} batches ends with {batches} whose loss is divided by {by} "
                    f"on {ranks_phrase(left)}",
                    ranks=tuple(left),
                    where=recordings[rank].steps[-1].optimizer_steps[-1].at,
                    evidence=(Evidence(f"updates so far: {by} micro-batches each", (rank,)),),
                    confidence=Confidence.LIKELY,
                )
            reason = "the passes over the DataLoader were cut short, so no last window was seen"
            raise NotMeasured(reason, cut_short=True)
        return Passed(f"every update summed {next(filter(None, divided.values()))} micro-batches")

    def _uneven(self, ranks: tuple[int, ...], of: Recording, windows: list[TrainingStep], by: int) -> Finding:
        used, count = windows[0].optimizer_steps, _summed(windows[0], by)
        what, times = "after the last update came", tuple[Evidence, ...]()
        if used:
            text = f"its gradient is {count / by:.2g} times that of the other windows"
            times = (Evidence(text, ranks[:1]),)
            what = "an update follows" if count > by else "an update sums"
        lengths = Counter(len(step.backwards) for step in of.steps)
        shown = ", ".join(f"{n} of {plural(length, 'micro-batch')}" for length, n in sorted(lengths.items()))
        return self.warn(
            f"{what} {plural(count, 'micro-batch')} whose loss was divided by {by} on {ranks_phrase(ranks)}",
            ranks=ranks,
            where=(used or windows[0].backwards)[-1].at,
            evidence=(Evidence(f"updates: {shown}", ranks[:1]), *times),
        )


def _divisor(steps: Sequence[TrainingStep]) -> int | None:
    """The one number, 2 or more, by which every loss was divided; None where it varies or none was seen."""
    factors = {backward.factor for step in steps for backward in step.backwards}
    if len(factors) != 1 or not (factor := factors.pop()) or not 0 < factor <= 0.5:
        return None
    by = round(1 / factor)
    # A loss may be divided for another reason. It is accumulation only if a window has this length.
    same = any(len(step.backwards) == by for step in steps)
    return by if same and abs(factor * by - 1) < 1e-3 else None


def _wrong(recording: Recording, by: int | None, ended: bool) -> list[TrainingStep]:
    """The windows of another length; those that fast-forward or a hang cut are not the script's work."""
    if by is None or _is_cut_short(recording):
        return []
    windows = recording.all_steps if ended else recording.steps
    trailing = recording.trailing
    return [step for step in windows if _summed(step, by) != by and (step.backwards or step is not trailing)]


def _summed(step: TrainingStep, by: int) -> int:
    """The micro-batches of an update, less full windows in front of them that were not for it: whose gradients the
    script cleared again after it had looked at them."""
    begins = [number for number, backward in enumerate(step.backwards) if backward.anew]
    return len(step.backwards) - (begins[-1] if begins and not any(it % by for it in begins) else 0)


def _is_cut_short(recording: Recording) -> bool:
    return any(pass_.ended == "shortened" for pass_ in recording.passes)


def _left_over(recording: Recording, by: int | None) -> Pass | None:
    """A pass that was cut short, whose last window is to be another one if the script goes on as it did."""
    last = recording.steps[-1]
    backward = last.backwards[-1].at if last.backwards else None
    update = last.optimizer_steps[-1].at if last.optimizer_steps else None
    even = all(len(step.backwards) == by for step in recording.steps)
    if by is None or backward is None or update is None or not even:
        return None
    passes = (pass_ for pass_ in recording.training_passes if pass_.ended == "shortened" and pass_.batches)
    alike = (it for it in passes if (it.batches or 0) % by and _divides_alike(it.at, backward, update))
    return next(alike, None)


def _divides_alike(at: Where | None, backward: Where, update: Where) -> bool:
    """Whether a loop over a DataLoader goes to its end in windows of its own, of a loss that a constant divides."""
    file = read(backward.file)
    if file is None or at is None or {at.file, update.file} != {backward.file} or backward.line is None:
        return False
    scope = file.function_at(backward.line)
    loops = (node for node in own_nodes(scope) if isinstance(node, ast.For) and node.lineno == at.line)
    loop = next((loop for loop in loops if backward.line in lines(loop)), None)
    if loop is None or any(isinstance(part, _LEAVING) for part in ast.walk(loop)):
        return False
    divisors = [
        part.right if isinstance(part, ast.BinOp) else part.value
        for part in ast.walk(loop)
        if isinstance(part, ast.BinOp | ast.AugAssign) and isinstance(part.op, ast.Div)
    ]
    constant = bool(divisors) and all(_is_constant(divisor, loop) for divisor in divisors)
    return constant and _counts_from_its_start(loop, scope, update)


def _counts_from_its_start(loop: ast.For, scope: Function | ast.Module, update: Where) -> bool:
    """Whether the update is under a condition on the batches of this pass: a count that goes on in the next epoch
    carries the window over, and loses nothing."""
    inside = [node for node in own_nodes(scope) if isinstance(node, ast.For | ast.While)]
    around = [node for node in inside if node is not loop and loop.lineno in lines(node)]
    epoch = max(around, key=lambda node: node.lineno, default=scope)
    resets = (node for node in epoch.body if isinstance(node, ast.Assign) and node.lineno < loop.lineno)
    counters = _names(loop.target).union(
        *(_names(it) for node in resets if isinstance(node.value, ast.Constant) for it in node.targets)
    )
    tests = [node.test for node in ast.walk(loop) if isinstance(node, ast.If) and update.line in lines(node)]
    named: set[str] = set().union(*map(_names, tests))
    assigned = (node for node in ast.walk(loop) if isinstance(node, ast.Assign))
    tests += [node.value for node in assigned if named.intersection(*map(_names, node.targets))]
    remainders = (part for test in tests for part in ast.walk(test) if isinstance(part, ast.BinOp))
    counted = [_names(part.left) for part in remainders if isinstance(part.op, ast.Mod)]
    return any(counted) and all(names <= counters for names in counted)


def _names(expression: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(expression) if isinstance(part, ast.Name)}


def _is_constant(divisor: ast.expr, loop: ast.For) -> bool:
    """Whether it is a number or a variable that the loop leaves as it is, or sets to such a value."""
    if isinstance(divisor, ast.Constant):
        return True
    name = getattr(divisor, "id", "")
    stored = [getattr(it, "id", "") for it in ast.walk(loop) if isinstance(getattr(it, "ctx", 0), ast.Store)]
    values = [
        part.value
        for part in ast.walk(loop)
        if isinstance(part, ast.Assign) and [getattr(target, "id", "") for target in part.targets] == [name]
    ]
    of_loop = len(values) < stored.count(name) or any(getattr(value, "id", "") in stored for value in values)
    kept = all(isinstance(it, ast.Constant | ast.Name | ast.Attribute) for it in (divisor, *values))
    return kept and not of_loop

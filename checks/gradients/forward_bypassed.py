from ddpdoctor.check import Check, Evidence, Findings, Passed
from ddpdoctor.text import differ, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.sync import MissedReduction, finding_fields, unaveraged_updates


class ForwardBypassed(Check):
    """Training bypasses DistributedDataParallel's forward.

    What it finds:
        Updates of wrapped parameters by gradients that came from a call of the wrapped module itself:
        model.module(x), a method of the inner module, or a name that still means the module before the wrap, also
        where torch.compile has compiled it.
        No all-reduce ran, and the script did not average the gradients in another way.

    Why it matters:
        DDP arms its reducer in its own forward. A backward that did not start there leaves every rank with the
        gradients of its own data, so each rank trains a different model, without an error. What rank 0 saves
        has seen 1/N of the data.

    Example:
        A custom method is reached through the wrapper's attribute:
            model = DistributedDataParallel(net)
            loss = model.module.compute_loss(batch)
            loss.backward()

    Fix:
        Call what DistributedDataParallel returned, or what torch.compile made of that: loss = ddp(batch). Have forward
        do what a method does; several methods can be told apart by an argument: ddp(batch, mode="loss"). The inner
        module is for evaluation and saving.
    """

    code = "DD201"
    title = "training goes through DDP's forward"
    explained_by = ("DD225",)

    def examine_run(self, trace: Trace) -> Findings:
        for updates in unaveraged_updates(trace, MissedReduction.BYPASSED):
            first = next((update for update in updates if update.differing), updates[0])
            name = first.wrapper.module
            sign = "no all-reduce averaged its gradients"
            if first.differing:
                sign = f"{differ(len(first.differing), first.compared, 'gradient')} between ranks"
            fields, at = finding_fields(updates, first), first.wrapper.at
            if first.first.forward is None and at:
                made = f"the wrapper was made at {at}; what the script called instead was not seen"
                fields["evidence"] += (Evidence(made, where=at),)
            yield self.fail(
                f"{ranks_phrase(first.by_rank)} trained {name} without DistributedDataParallel's forward: {sign}",
                **fields,
            )
        yield Passed("every update came from a forward through DistributedDataParallel")

from ddpdoctor.check import Check, Judgement, Passed
from ddpdoctor.failures import Message
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace, shown_at
from ddpdoctor.trace.raised import raised_as, raised_by, with_victims


class StaticGraphViolated(Check):
    """The graph changed between steps, although static_graph=True was set.

    What it finds:
        The error "training graph has changed in this iteration", which a wrapper with static_graph=True raises
        when another set of parameters takes part than in the first step.

    Why it matters:
        With static_graph=True DDP learns in the first step which gradients to wait for. A parameter that is used
        later, or no longer, leaves a bucket that is never complete.

    Example:
        The auxiliary head joins after a warm-up:
            model = DistributedDataParallel(net, static_graph=True)
            loss = main + (aux if step > 100 else 0)

    Fix:
        Use the same parameters in every step, with weight zero where they should not count; or leave out static_graph
        and set find_unused_parameters=True.
    """

    code = "DD222"
    title = "the graph of a model with static_graph=True does not change"
    messages = (
        Message(
            r"training graph has changed in this iteration",
            headline="the graph of a model wrapped with static_graph=True changed",
        ),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        if raised := raised_as(trace, *self.raises):
            fields, recording = raised_by(trace, raised), trace.recordings()[next(iter(raised))]
            static = [wrapper for wrapper in recording.wrappers if wrapper.flags.get("static_graph")]
            wrap = static[0].at if len(static) == 1 else None
            evidence = (*fields["evidence"], *shown_at("raised", fields["where"]))
            return self.fail(
                f"{self.messages[0].headline} on {ranks_phrase(with_victims(trace, raised))}",
                **{**fields, "where": wrap or fields["where"], "evidence": evidence},
            )
        wrappers = [wrapper for recording in trace.training().values() for wrapper in recording.wrappers]
        self.require(any(it.flags.get("static_graph") for it in wrappers), "no wrapper has static_graph=True")
        return Passed("the graph stayed the same in every step")

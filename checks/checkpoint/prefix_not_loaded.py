import re
from collections.abc import Iterable

from ddpdoctor.check import Check, Findings, Judgement, Passed
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.recorder.events.files import StateLoad
from ddpdoctor.text import listing, plural, quote, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_line, on_each_rank

PREFIXES = ("module.", "_orig_mod.")
_KEY = r"^KeyError: ['\"](module|_orig_mod)\.[\w.]+['\"]$"
"""In scripts that copy name by name."""
_HAS, _HAS_NOT = r"['\"](module|_orig_mod)\.", r"['\"](?!module\.|_orig_mod\.)"
_BARE_MODEL, _WRAPPED_MODEL = (
    rf"Missing key\(s\) in state_dict: {model}(?s:.)*Unexpected key\(s\) in state_dict: {saved}"
    for model, saved in ((_HAS_NOT, _HAS), (_HAS, _HAS_NOT))
)


class PrefixNotLoaded(Check):
    """The names in a checkpoint have another prefix than the model's, and nothing is loaded.

    What it finds:
        load_state_dict calls whose missing and unexpected names are the same but for "module." (of
        DistributedDataParallel) or "_orig_mod." (of torch.compile): with strict=False, which raises no error, and
        where the error of strict=True ends the run. Also strict=False that loaded not a single name. A checkpoint
        that lacks a new head, and a second attempt that loads, are left alone.

    Why it matters:
        A wrapper adds a prefix to every name of a state dict. A state that was saved from a wrapped model and is loaded
        into a bare one, or the other way round, raises an error; with strict=False the model keeps its random weights,
        and what was to be fine-tuned or evaluated is noise. It shows as a bad start, if at all.

    Example:
        torch.save(ddp_model.state_dict(), "last.pt")                  # names begin with module.
        model.load_state_dict(torch.load("last.pt"), strict=False)     # loads none of them

    Fix:
        Save the bare model, and load strictly:
            torch.save(ddp_model.module.state_dict(), "last.pt")
            model.load_state_dict(torch.load("last.pt"))
        For files that have the prefix:
            state = {name.removeprefix("module.").removeprefix("_orig_mod."): value for name, value in state.items()}
    """

    code = "DD403"
    title = "checkpoints are loaded under the model's names"
    raises = (_BARE_MODEL, _WRAPPED_MODEL)

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.recordings()
        calls = max((len(_into_models(recording)) for recording in recordings.values()), default=0)
        self.require(calls, "no model's state was loaded")
        for lost in by_line(on_each_rank(recordings, _lost)):
            load = next(iter(lost.values()))
            total = load.matched + len(load.missing)
            prefix = _prefix(load)
            because = f": the checkpoint's names {prefix}" if prefix else ""
            yield self.fail(
                f"load_state_dict loaded {load.matched} of {plural(total, 'name')} into {load.name} on "
                f"{ranks_phrase(lost)}{because}",
                ranks=tuple(lost),
                where=load.at,
                evidence=(f"missing: {_some(load.missing)}", f"unexpected: {_some(load.unexpected)}"),
            )
        yield Passed(f"{plural(calls, 'load_state_dict call')} found the model's names")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(*self.raises) or log.reason(_KEY)
        is_wrapped = reason.match.re.pattern == _WRAPPED_MODEL
        ours, theirs = ("do", "do not begin") if is_wrapped else ("do not", "begin")
        return self.fail(
            f"the names of a checkpoint {theirs} with '{reason.match[1]}.', and those of the model {ours}",
            **log_fields(reason),
        )


def _into_models(recording: Recording) -> list[StateLoad]:
    return [load for load in recording.state_loads if load.kind == "module"]


def _lost(recording: Recording) -> list[StateLoad]:
    """The calls that loaded nothing for a prefix, unless a later one into the same module did."""
    lost: list[StateLoad] = []
    loaded: set[tuple[str, int | None]] = set()
    for load in reversed(_into_models(recording)):
        if (load.name, load.wrapper) not in loaded and _is_lost(load, recording):
            lost.insert(0, load)
        if load.matched:
            loaded.add((load.name, load.wrapper))
    return lost


def _is_lost(load: StateLoad, recording: Recording) -> bool:
    if load.error:
        raised = recording.raised
        return bool(_prefix(load)) and raised is not None and "state_dict" in raised.message
    return not load.strict and bool(_prefix(load) or (not load.matched and load.missing and load.unexpected))


def _prefix(load: StateLoad) -> str | None:
    """How the names of the checkpoint differ from the model's, where it is by a prefix."""
    for prefix in PREFIXES:
        if not set(load.missing).isdisjoint(_without(prefix, load.unexpected)):
            return f"begin with {prefix}"
        if not set(load.unexpected).isdisjoint(_without(prefix, load.missing)):
            return f"lack {prefix}"
    return None


def _without(prefix: str, names: Iterable[str]) -> list[str]:
    """The names that have the prefix somewhere, without it."""
    return [name.replace(prefix, "", 1) for name in names if re.search(rf"(^|\.){re.escape(prefix)}", name)]


def _some(names: tuple[str, ...]) -> str:
    return listing([quote(name) for name in names]) or "none"

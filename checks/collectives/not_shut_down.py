import sys
from functools import cache
from importlib.machinery import PathFinder

from ddpdoctor.check import Check, Judgement, NotMeasured, Passed, Role, Where
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.program import Program
from ddpdoctor.program.known import MAKE_GROUPS
from ddpdoctor.recorder.where import package_of
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Recording, Trace

_WARNING = r"destroy_process_group\(\) was not called before program exit|process group has NOT been destroyed before"
_MAKES = "torch.distributed.init_process_group"
_LOADS = (
    "importlib.import_module",
    "importlib.util.spec_from_file_location",
    "builtins.__import__",
    "builtins.exec",
)
"""Functions that load modules which may destroy the process group."""


class NotShutDown(Check):
    """A script ends without destroying its process group.

    What it finds:
        Ranks that reached the end of the script without calling destroy_process_group, or a script that was cut short
        and nowhere calls it; and NCCL's warning about it in the output of a job that did not fail. What happens to a
        process after the end of its script, for instance an abort in gloo, is not reported.

    Why it matters:
        The group is destroyed with the interpreter, in an undefined order: NCCL warns, may wait for ranks that have
        exited, and sometimes aborts, which a launcher counts as a failed job.

    Example:
        if __name__ == "__main__":
            main()                    # calls init_process_group and returns

    Fix:
        Destroy it however the script ends:
            try:
                main()
            finally:
                dist.destroy_process_group()
    """

    code = "DD310"
    title = "the process group is destroyed at the end"
    log_words = ("destroy_process_group", "NOT been destroyed")

    def examine_run(self, trace: Trace) -> Judgement:
        ended = {rank: recording for rank, recording in trace.recordings().items() if _ended(recording)}
        if not ended:
            return self._as_written(trace)
        joined = {
            rank: recording.group_events("init")
            for rank, recording in ended.items()
            if recording.group_events("init") and not recording.group_events("destroy")
        }
        if not joined:
            return Passed(f"{ranks_phrase(ended)} destroyed the process group")
        return self.info(
            f"{ranks_phrase(joined)} ended without destroy_process_group",
            ranks=tuple(joined),
            where=next(iter(joined.values()))[0].at,
        )

    def _as_written(self, trace: Trace) -> Judgement:
        """Of a script that was stopped before its end: whether its files destroy the group at all."""
        recordings = trace.recordings()
        if not any(recording.exit and recording.exit.how == "shortened" for recording in recordings.values()):
            raise NotMeasured(trace.broken or "no rank recorded how its script ended")
        joined = {rank: recording.group_events("init") for rank, recording in recordings.items()}
        init = next((events[0].at for events in joined.values() if events), None)
        script = next(iter(recordings.values())).script
        if trace.broken or init is None or not _lacks_the_call(script, init):
            raise NotMeasured(trace.broken or "the script was stopped before its end")
        return self.info("no file of the script calls destroy_process_group", ranks=tuple(joined), where=init)

    def examine_log(self, log: Log) -> Judgement:
        lines = log.find(_WARNING)
        if not lines:
            return NOT_IN_OUTPUT
        self.require(not log.failed, "the job failed, and did not come to its end")
        headline = "the job ended without destroy_process_group"
        return self.info(headline, **log_fields(*lines[:8], role=Role.MESSENGER))


def _ended(recording: Recording) -> bool:
    """Whether its script ended by itself and without an exception."""
    left = recording.exit
    return left is not None and left.how in ("returned", "exit") and recording.raised is None


def _lacks_the_call(script: str, init: Where) -> bool:
    """Whether the script makes the process group itself, all its files were read, and none destroys the group."""
    program = Program.of(script)
    if not any(it.file == init.file and it.line == init.line for it in program.calls(_MAKES)):
        return False
    if not all(map(_is_library, program.unread_modules())) or program.calls(*_LOADS):
        return False
    return not program.mentions("destroy_process_group")


@cache
def _is_library(module: str) -> bool:
    """Whether it comes with Python or is installed, and makes no process groups: what is found by PYTHONPATH or ``pip
    install -e`` may be a part of the script, and destroy its group."""
    top = module.partition(".")[0]
    if top in (*sys.stdlib_module_names, "torch"):
        return True
    if top in MAKE_GROUPS:
        return False
    spec = PathFinder.find_spec(top)
    return spec is not None and bool(package_of(spec.origin or ""))

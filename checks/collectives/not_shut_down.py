import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Judgement, Passed, Role, Skipped, Where
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.syntax import FUNCTIONS, called_name, calls_of, modules_of, parsed

_WARNING = r"destroy_process_group\(\) was not called before program exit|process group has NOT been destroyed before"
_ENDS = re.compile(r"(?i)destroy|clean_?up|shut_?down|tear_?down|finali[sz]e|import_module|__import__")
"""Names of functions of unread modules that may destroy the process group, or load modules that do."""


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
            raise NotMeasured(trace.broken or "no rank told how its script ended")
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
        if log.failed:
            return Skipped("the job failed, and did not come to its end")
        headline = "the job ended without destroy_process_group"
        return self.info(headline, **log_fields(*lines[:8], role=Role.MESSENGER))


def _ended(recording: Recording) -> bool:
    """Whether its script ended by itself and without an exception."""
    left = recording.exit
    return left is not None and left.how in ("returned", "exit") and recording.raised is None


def _lacks_the_call(script: str, init: Where) -> bool:
    """Whether the script makes the process group itself, and nothing in its files looks like the end of one."""
    files = [tree for tree in map(parsed, modules_of(script)) if tree is not None]
    made = parsed(init.file)
    if made not in files or init.line not in calls_of(made, "init_process_group"):
        return False
    read = [Path(file).with_suffix("").as_posix().removesuffix("/__init__") for file in modules_of(script)]
    if not all(_is_library(names[0]) or _is_among(read, names) for tree in files for names in _imports(tree)):
        return False
    calls = {called_name(node) for tree in files for node in ast.walk(tree) if isinstance(node, ast.Call)}
    defined = {node.name for tree in files for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
    names = {getattr(node, "attr", getattr(node, "id", "")) for tree in files for node in ast.walk(tree)}
    return "destroy_process_group" not in names and not any(_ENDS.search(name) for name in calls - defined)


def _imports(tree: ast.Module) -> Iterator[list[str]]:
    """What each import of a file may mean: a module, or a module in a package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ([alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ([node.module, f"{node.module}.{alias.name}"] for alias in node.names)


def _is_among(read: list[str], names: list[str]) -> bool:
    return any(file.endswith("/" + name.replace(".", "/")) for file in read for name in names)


@cache
def _is_library(module: str) -> bool:
    """Whether it comes with Python or is installed: what is found by PYTHONPATH or ``pip install -e`` may be a part of
    the script, and destroy its group."""
    top = module.partition(".")[0]
    if top in (*sys.stdlib_module_names, "torch"):
        return True
    spec = PathFinder.find_spec(top)
    return spec is not None and not {"site-packages", "dist-packages"}.isdisjoint(
        Path(spec.origin or "").parts
    )

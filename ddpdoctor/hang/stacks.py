"""Stacks of running processes, by py-spy; by the interpreter itself where ptrace is not allowed.

And stacks that others wrote as text: py-spy dump, faulthandler, and the dumps of torch.distributed.debug's server. That
server writes ``stacks_<time>.txt`` (of faulthandler) and ``pyspy_dump_<time>.txt``, with a header before each rank, and
``fr_trace_<time>.txt``, tables of all ranks. Of files without such headers, the name tells the rank.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from ddpdoctor.blame.frames import Frame, is_of_recorder, is_of_script, parse_faulthandler
from ddpdoctor.blame.hang_snapshot import Doing, Dump, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.files import written_at
from ddpdoctor.hang.flight import tables
from ddpdoctor.hang.flight.reading import rank_of
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.recorder.where import installed_elsewhere
from ddpdoctor.text import shorten

PY_SPY_SECONDS = 10.0
"""Long for a tool that needs 0.1 s: a machine whose job hangs may be busy."""
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_C10D = "torch/distributed/distributed_c10d.py"
_FUTURES, _THREADING = "/concurrent/futures/", "/threading.py"
_INNERMOST = 4
"""Frames of the standard library between what a script calls to wait for threads and the lock behind it."""
_LIBRARIES = re.compile(r"/lib/python3[.\d]*/(?!site-packages/(?!torch/))|^<")
_INSTALLED = re.compile(r"/lib/python3[.\d]*/|^<")
"""Python's own files, and those of packages."""


class StacksUnavailable(Exception):
    """py-spy could not look at a process; the text says why and what to do."""


def py_spy() -> str | None:
    """The path of the py-spy program: the one installed beside this Python, or the one that PATH finds."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


@dataclass(frozen=True)
class MainThread:
    """A main thread at one moment."""

    stack: tuple[Frame, ...]
    """Outermost frame first."""
    values: str = ""
    """The local variables of its frames, and of those of threads for which it waits, as py-spy writes them: of a
    script that goes on, some change."""
    number: int = 0
    """The system's, where it is another one than the main thread that runs the script."""
    peer: int | None = None
    """The rank that its call of torch.distributed names: where a message goes to or comes from, or a collective."""


def take_stacks(pids: Iterable[int]) -> dict[int, tuple[Frame, ...] | StacksUnavailable]:
    """The main thread's stack of each process, outermost frame first, or why there is none."""
    threads = look_into(pids)
    return {pid: it.stack if isinstance(it, MainThread) else it for pid, it in threads.items()}


def look_into(pids: Iterable[int], stopped: Container[int] = ()) -> dict[int, MainThread | StacksUnavailable]:
    """Each process's main thread, or why it cannot be seen; those a signal or debugger holds are read as they are."""
    options = {pid: ("--nonblocking",) if pid in stopped else () for pid in pids}
    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(options, pool.map(_try_one, options, options.values()), strict=True))


def take_native(pids: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """The native functions below the innermost Python frame of each main thread, outermost first.

    Empty where py-spy cannot tell: it unwinds native stacks on some platforms only, and a process that holds the
    interpreter's lock in a library without unwind tables has none that can be followed.
    """
    wanted = list(pids)
    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(wanted, pool.map(_native_of_one, wanted), strict=True))


def _try_one(pid: int, options: Sequence[str]) -> MainThread | StacksUnavailable:
    try:
        threads = dump(pid, "--locals", *options)
    except StacksUnavailable as why:
        return why
    thread = _scripts_thread(threads, pid)
    frames, number = _frames(thread), thread.get("os_thread_id") or pid
    working = [frames, *(thread.get("frames", ()) for thread in threads if _waits_for_threads(frames))]
    of_script = (frame for each in working for frame in each if not _waits_in(frame["filename"]))
    values = str([(frame["line"], frame.get("locals")) for frame in of_script])
    return MainThread(_python(frames), values, 0 if number == pid else number, peer_of(frames))


def _waits_in(file: str) -> bool:
    """Whether it is Python's own or torch's: these look at the clock now and then while they wait, and count."""
    return bool(_LIBRARIES.search(file)) or installed_elsewhere(file).endswith("/torch")


def _waits_for_threads(frames: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a thread waits for what others of its process have to finish: results of a pool, or their end."""
    innermost = frames[:_INNERMOST]
    return any(
        _FUTURES in frame["filename"]
        or (frame["filename"].endswith(_THREADING) and frame["name"] in ("join", "_wait_for_tstate_lock"))
        for frame in innermost
    )


def peer_of(frames: Sequence[Mapping[str, Any]]) -> int | None:
    """The rank of the job that the arguments of the outermost call of torch.distributed name; in frames with their
    variables, innermost first, as py-spy tells them."""
    calls = (frame for frame in reversed(frames) if frame["filename"].endswith(_C10D))
    for call in calls:
        values = {variable["name"]: variable.get("repr") for variable in call.get("locals") or ()}
        of_default_group = ("group_src", "group_dst") if values.get("group") == "None" else ()
        for name in ("src", "dst", *of_default_group):
            if (text := values.get(name) or "").isdecimal():
                return int(text)
    return None


def _native_of_one(pid: int) -> tuple[str, ...]:
    try:
        return _native(main_thread(dump(pid, "--native"), pid))
    except StacksUnavailable:
        return ()


def dump(pid: int, *options: str) -> list[Mapping[str, Any]]:
    """All threads of a process, as py-spy tells them. Raises StacksUnavailable where it could not look."""
    if (program := py_spy()) is None:
        raise StacksUnavailable("py-spy is not installed: pip install py-spy")
    # One process at a time: `dump --json` ignores `--subprocesses`.
    command = [program, "dump", "--json", *options, "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PY_SPY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise StacksUnavailable(f"py-spy did not answer within {PY_SPY_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise StacksUnavailable(_why(done.stderr))
    threads: list[Mapping[str, Any]] = json.loads(done.stdout)
    return threads


def _why(complaint: str) -> str:
    if "ermission" not in complaint:
        message = complaint.partition("Stack backtrace:")[0]  # its own, which RUST_BACKTRACE=1 asks for
        last = message.strip().splitlines()[-1:] or ["py-spy failed and said nothing"]
        return last[0]
    scope = PTRACE_SCOPE.read_text().strip() if PTRACE_SCOPE.exists() else "0"
    if scope != "0":
        return f"ptrace is not allowed (ptrace_scope is {scope}): sudo sysctl kernel.yama.ptrace_scope=0"
    return "ptrace is not allowed: run as the same user, in a container with --cap-add SYS_PTRACE"


def main_thread(threads: Sequence[Mapping[str, Any]], pid: int) -> Sequence[Mapping[str, Any]]:
    """The frames of the main thread, innermost first, or of the one that runs the script instead."""
    return _frames(_scripts_thread(threads, pid))


def _scripts_thread(threads: Sequence[Mapping[str, Any]], pid: int) -> Mapping[str, Any]:
    """The main thread; py-spy lists threads in no order, and may not know names. Of a program that runs a script's
    functions in a thread, as a worker of Ray's does, that thread."""
    by_id = [thread for thread in threads if thread.get("os_thread_id") == pid]
    by_name = [thread for thread in threads if thread.get("thread_name") == "MainThread"]
    main: Mapping[str, Any] = [*by_id, *by_name, *threads, {}][0]
    outermost = _of_python(main)[-1:]
    if any(frame["name"] == "<module>" and _INSTALLED.search(frame["filename"]) for frame in outermost):
        return next((it for it in threads if any(map(is_of_script, _python(_of_python(it))))), main)
    return main


def _of_python(thread: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [frame for frame in _frames(thread) if not frame.get("module")]  # a native one has a module


def _frames(thread: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    frames: Sequence[Mapping[str, Any]] = thread.get("frames", ())
    return frames


def _python(frames: Sequence[Mapping[str, Any]]) -> tuple[Frame, ...]:
    return tuple(Frame(frame["name"], frame["filename"], frame["line"]) for frame in reversed(frames))


def _native(frames: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    below = tuple(takewhile(lambda frame: frame.get("module"), frames))  # a Python frame has no module
    return tuple(f"{frame['name']} ({Path(frame['module']).name})" for frame in reversed(below))


_LARGEST = 64 << 20
_LOOKED_AT = 4096
_RANK = re.compile(r"^=== Rank (?P<rank>\d{1,7}): (?P<address>\S*) ===$", re.MULTILINE)
_PROCESS = re.compile(r"^Process (?P<pid>\d+): (?P<command>.*)$", re.MULTILINE)
_THREAD = re.compile(r'^Thread (?P<id>\w+) \((?P<doing>[a-z+]+)\)(?:: "(?P<name>.*)")?$', re.MULTILINE)
_FRAME = re.compile(r"^ {4}(?P<function>\S.*) \((?P<file>[^()]+):(?P<line>\d+)\)$", re.MULTILINE)
_BEGINS = re.compile(
    rf"\s*(?:PARTIAL DATA: |{tables.BEGINS}|=== Rank \d+: |Process \d+: .*\nPython v"
    r"|(?:Current t|T)hread 0x\w+ .*\(most recent call first\):)"
)


def looks_like_stacks(file: Path) -> bool:
    """Whether a file begins as these do."""
    try:
        with file.open("rb") as opened:
            return bool(_BEGINS.match(opened.read(_LOOKED_AT).decode(errors="replace")))
    except OSError:
        return False


def read_stacks(files: Sequence[Path]) -> HangSnapshot:
    """The processes that the newest file shows of each rank; an older one tells whether they stand."""
    seen: dict[tuple[int | None, str, int], SampledProcess] = {}
    unseen: dict[int, str] = {}
    flight: dict[int, Dump] = {}
    moved = False
    for file in sorted(files, key=lambda file: (written_at(file), file.name)):
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(_LARGEST)
        with suppress(Refused, ValueError, RecursionError):
            if dumps := tables.read_tables(text, file):
                moved = bool(flight) and _last_calls(flight) != _last_calls(dumps)
                flight = dumps
        for process in _processes(text, file):
            if process.unseen and process.rank is not None:
                unseen[process.rank] = process.unseen
                continue
            key = process.rank, process.role.value, 0 if process.role is ProcessRole.RANK else process.pid
            before = seen.get(key)
            again = before.stack if before and before.stack else process.stack
            seen[key] = replace(process, again=again)
    missing = [f"rank {rank}: {why}" for rank, why in sorted(unseen.items()) if (rank, "rank", 0) not in seen]
    if moved:
        missing.append("ranks issued further collectives between the last two flight recorder tables")
    ranks = {*(rank for rank, *_ in seen if rank is not None), *unseen, *flight}
    size = max(ranks, default=-1) + 1 or None
    flight = {} if moved else flight
    return HangSnapshot(tuple(seen.values()), world_size=size, flight=flight, unseen=tuple(missing))


def _last_calls(flight: Mapping[int, Dump]) -> dict[int, dict[str, int]]:
    return {rank: {group: call.number for group, call in dump.last.items()} for rank, dump in flight.items()}


def _processes(text: str, file: Path) -> Iterator[SampledProcess]:
    parts = _parts(_RANK, text)
    for header, own in parts:
        host = header["address"].rpartition("//")[2].rpartition(":")[0]
        yield from _of_rank(own, int(header["rank"]), host)
    if not parts:
        yield from _of_rank(text, rank_of(file), "")


def _parts(begins: re.Pattern[str], text: str) -> list[tuple[re.Match[str], str]]:
    """What follows each match, until the next."""
    found = list(begins.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [(match, text[match.end() : end]) for match, end in zip(found, ends, strict=False)]


def _of_rank(text: str, rank: int | None, host: str) -> Iterator[SampledProcess]:
    blocks = _parts(_PROCESS, text)
    for number, (block, own) in enumerate(blocks):
        stack, doing = _by_py_spy(own, block["pid"])
        role = ProcessRole.WORKER if number else ProcessRole.RANK
        pid, command = int(block["pid"]), shorten(block["command"])
        yield SampledProcess(pid, rank, role, host, command, doing=doing, stack=stack)
    if blocks or rank is None:
        return
    stack = parse_faulthandler(text)
    why = "" if stack else f"the debug server got no stack of it: {shorten(text.strip() or 'nothing')}"
    yield SampledProcess(0, rank, host=host, doing=Doing.WAITS, stack=stack, unseen=why)


def _by_py_spy(text: str, pid: str) -> tuple[tuple[Frame, ...], Doing]:
    """The main thread's stack, outermost first, and whether it uses a CPU."""
    for thread, own in _parts(_THREAD, text):
        if thread["name"] == "MainThread" or thread["id"] == pid:
            matches = _FRAME.finditer(own)
            frames = [Frame(it["function"], _in_full(it["file"]), int(it["line"])) for it in matches]
            doing = Doing.WAITS if thread["doing"] == "idle" else Doing.COMPUTES
            return tuple(frame for frame in reversed(frames) if not is_of_recorder(frame.file)), doing
    return (), Doing.UNKNOWN


def _in_full(file: str) -> str:
    """py-spy leaves out where a file of Python's own lies."""
    module = file.partition("/")[0].removesuffix(".py")
    return f"lib/python3/{file}" if module in sys.stdlib_module_names else file

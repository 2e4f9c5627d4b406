"""Frames of stacks, how people name the files in them, exceptions (a rank's own, or those that tell of a peer), and the
stacks of many ranks merged into one prefix tree, ranks on its branches.

The form of the tree is that of LLNL's Stack Trace Analysis Tool (Arnold et al., IPDPS 2007): ranks that stand in the
same place share a branch, so the odd one out is seen at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ddpdoctor
from ddpdoctor.failures import VICTIM, Says, is_of_another_service, says
from ddpdoctor.model import Where
from ddpdoctor.recorder.where import installed_elsewhere, is_in_package, package_of
from ddpdoctor.text import plural, ranks_phrase

_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|(?:^|/)lib/python3[.\d]*/|/Python3\d+/[Ll]ib/|(?:^|/)<|/bin/[\w-]+$|/ddpdoctor/recorder/"
    r"|^torch/|/torch/distributed/"
)
_STARTS_MAIN = re.compile(r"runpy(?:\.py|>)$|/bin/[\w-]+$|/torch/multiprocessing/spawn\.py$")
"""What a script in an installed package is started by: ``-m``, a command that pip made, ``torch.multiprocessing``."""
_RECORDER = Path(ddpdoctor.__file__).parent / "recorder"


@dataclass(frozen=True)
class Frame:
    """One frame of a stack."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({where_of(self)})"


def is_of_recorder(file: str) -> bool:
    """Whether a frame is the recorder's, which stands between the user's call and torch's function."""
    return Path(file).is_relative_to(_RECORDER)


def from_here(file: str) -> str:
    """A source file as findings name it: relative to the working directory where it lies below that, else in full."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def where_of(frame: Frame) -> Where:
    """The place in the source that a frame names."""
    return Where(from_here(frame.file), frame.line, frame.function or None)


def is_of_script(frame: Frame) -> bool:
    """Whether a frame is the script's own: not torch's, Python's, an installed package's or the recorder's."""
    return not (_FOREIGN.search(frame.file.replace("\\", "/")) or installed_elsewhere(frame.file))


def of_script(stack: Sequence[Frame]) -> list[int]:
    """The positions of the script's own frames in a stack with the outermost first.

    Where there is none, those of the installed package that ``-m``, a command or ``torch.multiprocessing`` started, or
    of one outside of Python's folders that was started by its path.
    """
    own_files = [number for number, frame in enumerate(stack) if is_of_script(frame)]
    if own_files:
        return own_files
    starts = [number for number, frame in enumerate(stack) if _STARTS_MAIN.search(frame.file)]
    started = stack[starts[-1] + 1 :] if starts else stack
    found = package_of if starts else installed_elsewhere
    package = found(started[0].file) if started else ""
    return [number for number, frame in enumerate(stack) if is_in_package(frame.file, package)]


def where_in(stack: Sequence[Frame]) -> Where | None:
    """The innermost line of the script's own, of frames with the outermost first; the innermost where none is."""
    return (innermost_of_script(stack) or where_of(stack[-1])) if stack else None


def innermost_of_script(stack: Sequence[Frame]) -> Where | None:
    """The innermost line of the script's own, of frames with the outermost first."""
    positions = of_script(stack)
    return where_of(stack[positions[-1]]) if positions else None


def function(frame: Frame) -> str:
    """The name alone: some versions of py-spy put the class before it."""
    return frame.function.rpartition(".")[2]


_FAULTHANDLER_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE
)


def parse_faulthandler(text: str) -> tuple[Frame, ...]:
    """The last stack that ``faulthandler`` wrote into a file, outermost frame first."""
    last = text.rpartition("Stack (most recent call first):")[2].rpartition("(most recent call first):")[2]
    frames = [Frame(m["function"], m["file"], int(m["line"])) for m in _FAULTHANDLER_FRAME.finditer(last)]
    return tuple(reversed(frames))


_TRACEBACK_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')


def frames_of(traceback: str) -> tuple[Frame, ...]:
    """The frames that Python printed in a traceback, outermost first."""
    return tuple(
        Frame(match["function"] or "", match["file"], int(match["line"]))
        for match in _TRACEBACK_FRAME.finditer(traceback)
    )


def fold_libraries(traceback: str) -> str:
    """A traceback whose frames outside the script are counted instead of shown."""
    stack = frames_of(traceback)
    shown = set(of_script(stack)) or set(range(len(stack)))
    lines: list[str] = []
    position, folded = -1, 0
    for line in traceback.splitlines():
        position += bool(is_frame := _TRACEBACK_FRAME.search(line))
        if is_frame and position not in shown:
            folded += 1
        elif not folded or is_frame or not line.startswith("    "):  # the source line of a frame is indented
            if folded:
                lines.append(f"  ... {plural(folded, 'frame')} in libraries")
            folded = 0
            lines.append(line)
    return "\n".join(lines)


def tells_of_a_peer(*chain: tuple[str, tuple[Frame, ...]]) -> bool:
    """Whether an exception says no more than that a peer was gone or did not come: by ``Type: message`` and the frames
    of it, then of the one that caused it, and so on."""
    texts = [text for text, _ in chain]
    if asked_the_store(*chain[0]) or is_of_another_service(texts, (raised_in(own) for _, own in chain)):
        return False
    return any(says(text, *VICTIM) for text in texts)


def raised_in(frames: tuple[Frame, ...]) -> str:
    """The file that raised an exception, or that called the function of Python's sockets that did."""
    files = (frame.file for frame in reversed(frames))
    return next((file for file in files if not file.endswith("/socket.py")), "")


def asked_the_store(text: str, frames: tuple[Frame, ...]) -> bool:
    """Whether the script itself waited for a key of the store, which is no collective."""
    return text.partition(":")[0].endswith("DistStoreError") and any(map(is_of_script, frames[-1:]))


@dataclass(frozen=True)
class Failure:
    """An exception in a rank."""

    type: str
    message: str
    traceback: str
    time: float
    """Seconds since the epoch, to tell who failed first."""

    @property
    def text(self) -> str:
        """``Type: message``."""
        return f"{self.type}: {self.message}"

    @property
    def timed_out(self) -> bool:
        """Whether it waited for the others until the timeout of the group."""
        return says(self.text, Says.PEER_LATE)

    @property
    def of_a_victim(self) -> bool:
        """Whether it says no more than that a peer was gone or did not come."""
        return tells_of_a_peer((self.text, frames_of(self.traceback)))

    @property
    def at_closed_address(self) -> bool:
        """Whether gloo reached no peer at the address that the store has."""
        return "connectFullMesh failed" in self.message


@dataclass
class Node:
    """A frame, the ranks whose stacks pass through it, and the frames called from it."""

    ranks: list[int] = field(default_factory=list)
    calls: dict[Frame, Node] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    """The ranks whose innermost frame this is."""


def merge(stacks: Mapping[int, Sequence[Frame]]) -> Node:
    """The prefix tree of the stacks by rank, each stack outermost frame first."""
    alike: dict[tuple[tuple[str, str, int], ...], list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        # Tuples are compared without a call of Python code for each frame of each rank.
        key = tuple([(frame.function, frame.file, frame.line) for frame in stack])
        alike.setdefault(key, []).append(rank)
    root = Node()
    nodes = [root]
    for ranks in alike.values():
        node = root
        node.ranks += ranks
        for frame in stacks[ranks[0]]:
            if frame not in node.calls:
                node.calls[frame] = Node()
                nodes.append(node.calls[frame])
            node = node.calls[frame]
            node.ranks += ranks
        node.ends += ranks
    for node in nodes:
        node.ranks.sort()
    return root


def lines(root: Node) -> Iterator[str]:
    """The tree as text: unbranched runs of frames at one depth, a rank range wherever the tree branches."""
    yield from _lines(root, 0)


def show(stacks: Mapping[int, Sequence[Frame]], whose: str = "stacks of all ranks") -> str:
    """The stacks by rank as a finding shows them: merged, under a line that says whose they are."""
    return "\n".join((f"{whose}, innermost call last:", *lines(merge(stacks))))


def _lines(node: Node, depth: int) -> Iterator[str]:
    pad = "  " * depth
    for frame, child in sorted(node.calls.items(), key=lambda pair: pair[1].ranks):
        if len(node.calls) > 1 or depth == 0:
            yield f"{pad}{ranks_phrase(child.ranks)}:"
        inner = depth + 1 if len(node.calls) > 1 or depth == 0 else depth
        yield f"{'  ' * inner}{frame}"
        yield from _lines(child, inner)
    if node.ends and node.calls:
        yield f"{pad}{ranks_phrase(node.ends)}: here"

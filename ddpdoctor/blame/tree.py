"""Stacks of many ranks merged into one prefix tree, ranks on its branches.

The form is that of LLNL's Stack Trace Analysis Tool (Arnold et al., IPDPS 2007): ranks that stand in the same
place share a branch, so the odd one out is seen at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ddpdoctor.blame.frames import Frame
from ddpdoctor.text import ranks_phrase


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

"""A running job on one screen: what all ranks do together, then the ranks that want a look, then the others."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ddpdoctor.live.job import LiveJob, LiveRank, State, pace, place, troubles
from ddpdoctor.text import ABSENT, age, duration, fold_ranks, plural, share, size

_FEWEST_LINES = 4
"""Of ranks, however low the terminal is."""
_STYLES = {State.FAILED: "bold red", State.STILL: "bold yellow", State.ENDED: "dim"}


def screen(job: LiveJob, title: str, height: int) -> RenderableType:
    """The job in so many lines."""
    head = [Text(title, style="bold", overflow="ellipsis", no_wrap=True), Text(_together(job))]
    head += [Text(line, style="yellow") for line in troubles(job)]
    room = max(_FEWEST_LINES, height - len(head) - 4)
    ranks = job.in_order()
    shown = ranks if len(ranks) <= room else ranks[: room - 1]
    parts: list[RenderableType] = [*head, "", _table(shown, {rank.host for rank in ranks})]
    if rest := ranks[len(shown) :]:
        parts.append(Text(f"{plural(len(rest), 'more rank')}: {_folded(rest)}", style="dim"))
    return Group(*parts)


def _together(job: LiveJob) -> str:
    parts = [f"step {job.steps:,}"] if job.ranks else ["no rank has started yet"]
    if seconds := job.step_seconds:
        parts.append(pace(seconds))
    if job.save:
        parts.append(f"last checkpoint {age(job.save_age)} ago: {job.save.path}")
    return "   ".join(parts)


def _table(ranks: Sequence[LiveRank], hosts: set[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column("rank", justify="right")
    if len(hosts) > 1:
        table.add_column("host", no_wrap=True)
    for name in ("step", "a step", "work", "for data", "for ranks", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("where")  # the one that gets shorter where the terminal is narrow
    for rank in ranks:
        host = [rank.host] if len(hosts) > 1 else []
        table.add_row(str(rank.rank), *host, *_cells(rank), style=_STYLES.get(rank.state, ""))
    return table


def _cells(rank: LiveRank) -> list[str | Text]:
    where = place(rank) if rank.state is State.RUNS else rank.state.value
    if rank.state is State.STILL:
        where = f"{rank.state.value} for {rank.still:.0f} s: {place(rank)}"
    return [
        f"{rank.steps:,}",
        duration(rank.step_seconds),
        duration(rank.work_seconds),
        share(rank.data_share),
        share(rank.wait_share),
        ABSENT if rank.memory is None else size(rank.memory),
        Text(where, no_wrap=True, overflow="ellipsis"),
    ]


def _folded(ranks: Sequence[LiveRank]) -> str:
    """What ranks that do not fit have in common."""
    steps = [rank.steps for rank in ranks]
    first, last = min(steps), max(steps)
    at = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
    numbers = fold_ranks(rank.rank for rank in ranks)
    return f"{at} ({numbers if len(numbers) < 40 else numbers[:36] + ' ...'})"

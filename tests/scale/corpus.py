"""Scripts at scale: the sick ones of this folder, and right ones of tests/healthy, run as a few ranks of many."""

from collections.abc import Collection
from pathlib import Path

from ddpdoctor.cli.launch_from_options import usual_ranks
from ddpdoctor.launch import Imagined
from ddpdoctor.model import Level
from tests.support.expectations import Expected, as_expected, expectations
from tests.support.forked import Ran, needs_gpus, run_forked

SICK = sorted(Path(__file__).parent.glob("dd*.py"))
HEALTHY = tuple(
    Path(__file__).parents[1] / "healthy" / f"{name}.py"
    for name in (
        "amp_unscaled",
        "averaged_flat_by_hand",
        "experts_of_each_rank",
        "loaded_under_a_lock",
        "collectives_of_groups",
        "compressing_hook",
        "hooks_of_its_own",
        "gathered_with_gradient",
        "global_token_mean",
        "join_uneven",
        "local_sgd",
        "post_local_sgd",
        "rate_by_broadcast",
        "summed_by_hand",
        "zero_redundancy",
    )
)
WORLD_SIZE, NPROC = 64, 8
_SECONDS = 120.0
_HANG_SECONDS = 6.0


def run_at_scale(script: Path, folder: Path, world_size: int) -> Ran:
    """Run a script as the usual few ranks of a job of this size."""
    imagined = Imagined(world_size, min(NPROC, world_size), usual_ranks(world_size, min(NPROC, world_size)))
    return run_forked(
        script, folder, imagined=imagined, rehearse=True, seconds=_SECONDS, hang_after=_HANG_SECONDS
    )


def found_at_scale(script: Path, folder: Path) -> str:
    """What is wrong with the findings of a sick script at scale; empty where they are as its comments say."""
    ran = run_at_scale(script, folder / "scale", WORLD_SIZE)
    # Ranks that fail at once may do so while another one still joins them: it never comes to the line.
    came = [rank for rank, recording in ran.trace.recorded.items() if recording.group_events("init")]
    wanted = sorted(map(str, (_of_real(it, came) for it in expectations(script, WORLD_SIZE))))
    told = sorted(
        str(as_expected(finding, script)) for finding in ran.findings if finding.level is not Level.INFO
    )
    return "" if told == wanted else "\n".join((*told, "instead of", *wanted, *ran.errors))


def is_silent(script: Path, world_size: int, folder: Path) -> str:
    """What is said of a right script on two real ranks, or as a job of this size; empty where it is nothing."""
    ran = (
        run_forked(script, folder / "two", nproc=2, rehearse=needs_gpus(script))
        if world_size == 2
        else run_at_scale(script, folder / str(world_size), world_size)
    )
    told = [
        f"{finding.code} {finding.headline}" for finding in ran.findings if finding.level is not Level.INFO
    ]
    if not told and ran.trace.broken is None:
        return ""
    return "\n".join((*told, str(ran.trace.broken), *ran.errors))


def _of_real(expected: Expected, real: Collection[int]) -> Expected:
    return Expected(expected.code, expected.line, tuple(rank for rank in expected.ranks if rank in real))

"""Every script here is right, though it looks suspicious: nothing is found, and the recorder changes nothing."""

from pathlib import Path

import pytest

from tests.support.command import ddpdoctor
from tests.support.forked import Ran, needs_gpus, run_alone, run_forked, starts_ranks_itself

HERE = Path(__file__).parent
SCRIPTS = sorted(script for script in HERE.glob("[!_]*.py") if not script.stem.startswith("test_"))
FORKED = [script for script in SCRIPTS if not starts_ranks_itself(script) and not needs_gpus(script)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_nothing_is_found(script: Path, tmp_path: Path) -> None:
    if starts_ranks_itself(script):
        ran = run_alone(script, tmp_path / "ran", "3")
    else:
        ran = run_forked(script, tmp_path / "ran", nproc=3, rehearse=needs_gpus(script))
    assert_nothing_is_found(ran)


@pytest.mark.parametrize("script", FORKED, ids=lambda script: script.stem)
def test_the_recorder_changes_nothing(script: Path, tmp_path: Path) -> None:
    """Same exit status, same stdout, same bits of weights and optimizer states, same random states; on two ranks.

    Each fits into the budget of time, so it runs whole though nobody asks for its full length.
    """
    plain = run_forked(script, tmp_path / "plain", record=False)
    recorded = run_forked(script, tmp_path / "recorded")
    assert recorded.trace.shortened is None
    assert recorded.statuses == plain.statuses, "\n".join(recorded.errors)
    assert recorded.outputs == plain.outputs
    assert recorded.finals == plain.finals
    assert_nothing_is_found(recorded)


def assert_nothing_is_found(ran: Ran) -> None:
    assert ran.told() == [], "\n".join(ran.errors)
    assert ran.trace.broken is None, "\n".join(ran.errors)
    notes = [note for rank in ran.trace.ranks if rank.recording for note in rank.recording.notes]
    assert [note for note in notes if note.text.startswith("Traceback")] == []


@pytest.mark.slow
def test_an_abort_after_the_end_of_a_script_is_none_of_its_launcher(tmp_path: Path) -> None:
    """torchrun raises an exception of its own then."""
    done = ddpdoctor(
        "check", "-q", "--nproc", "2", "--select", "run", HERE / "aborts_after_its_end.py", cwd=tmp_path
    )
    assert (done.status, "No problem found" in done.out) == (0, True), done.out + done.err

"""Exceptions that hide another one, read in the script."""

import traceback

import pytest

from ddpdoctor.job.job_folder import before_cleanup
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.patches.ends import _causes, _frames, _handled

IN_FINALLY = """
def clean_up():
    raise AssertionError("no group")

try:
    {}["lr"]
finally:
    clean_up()
"""
BEFORE_RAISE = """
def train():
    try:
        {}["lr"]
    except KeyError:
        raise_in_log()
        raise

def raise_in_log():
    raise AssertionError("no log")

train()
"""
RAISED_AGAIN_THEN_FINALLY = """
try:
    {}["lr"]
except KeyError:
    raise
finally:
    assert False, "no group"
"""
FALLBACK = """
try:
    {}["lr"]
except KeyError:
    assert False, "no default"
"""
RAISED_FROM = """
try:
    {}["lr"]
except KeyError as error:
    raise ValueError("no lr") from error
"""


def raised_by(folder, text: str) -> Raised:
    """What the recorder writes of a script's exception."""
    script = folder / f"train_{abs(hash(text))}.py"
    script.write_text(text)
    try:
        exec(compile(text, str(script), "exec"), {})
    except (AssertionError, ValueError) as error:
        causes = tuple(traceback.format_exception_only(cause)[0].strip() for cause in _causes(error))
        frames, handling = tuple(_frames(error.__traceback__)), tuple(_frames(_handled(error)))
        return Raised(type(error).__name__, str(error), 1.0, frames, frames[-1], causes, handling)
    raise AssertionError("the script came to its end")


@pytest.mark.parametrize(
    "text",
    [IN_FINALLY, BEFORE_RAISE, RAISED_AGAIN_THEN_FINALLY],
    ids=["in a finally", "before a raise", "in a finally, after a raise"],
)
def test_the_exception_that_was_going_to_end_the_script(tmp_path, text):
    raised = before_cleanup(raised_by(tmp_path, text))
    assert (raised.type, raised.message) == ("KeyError", "'lr'")
    assert (
        raised.frames[-1].line == text.splitlines().index(next(x for x in text.splitlines() if "lr" in x)) + 1
    )


@pytest.mark.parametrize(("text", "kind"), [(FALLBACK, "AssertionError"), (RAISED_FROM, "ValueError")])
def test_an_exception_that_stands_for_itself(tmp_path, text, kind):
    assert before_cleanup(raised_by(tmp_path, text)).type == kind

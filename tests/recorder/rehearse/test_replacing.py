"""Whose fault an exception is that ends a script in a rehearsal."""

from pathlib import Path

import pytest

from ddpdoctor.recorder.rehearse import replacing
from ddpdoctor.recorder.where import Where

HERE = Path(replacing.__file__).parent
SCRIPT = Where("/jobs/train.py", 12, "main")
TORCH = Where("/venv/lib/python3.11/site-packages/torch/functional.py", 9, "einsum")
PLAIN = Where(str(HERE / "replacing.py"), 30, "plain")
REFUSE = Where(str(HERE / "replacing.py"), 35, "refuse")
STREAMS = Where(str(HERE / "precision.py"), 40, "draw")


@pytest.mark.parametrize(
    ("frames", "own"),
    [
        ((SCRIPT,), False),
        ((SCRIPT, TORCH), False),
        ((SCRIPT, STREAMS, PLAIN), False),
        ((SCRIPT, STREAMS, PLAIN, TORCH), False),
        ((SCRIPT, STREAMS, REFUSE), False),
        ((SCRIPT, STREAMS), True),
        ((SCRIPT, STREAMS, TORCH), True),
        ((SCRIPT, STREAMS, SCRIPT), False),
    ],
)
def test_the_innermost_frame_of_the_rehearsal_tells(frames, own):
    assert replacing.is_own_fault("index out of range", frames, lambda file: file != SCRIPT.file) is own


@pytest.mark.parametrize(
    ("message", "own"),
    [
        ("Invalid scalar type", True),
        ("Cannot use ReduceOp.PREMUL_SUM with Gloo", True),
        ("Backend gloo does not implement startCoalescing", True),
        ("[pair.cc:553] Connection closed by peer [127.0.0.1]:56199", False),
        ("Cannot use ReduceOp.BAND with NCCL", False),
    ],
)
def test_gloo_lacks_what_nccl_has(message, own):
    assert replacing.is_own_fault(message, (SCRIPT, TORCH), lambda file: file != SCRIPT.file) is own

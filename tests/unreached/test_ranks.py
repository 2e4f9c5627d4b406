"""For which ranks a condition holds, whatever a library calls its flags."""

import pytest

from ddpdoctor.model import Where
from ddpdoctor.program import Program
from ddpdoctor.unreached.ranks import ranks_where, who


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch.distributed as dist\nif dist.get_rank() == 0:", "only rank 0"),
        ("import torch.distributed as dist\nif dist.get_rank():", "only ranks other than 0"),
        ("from accelerate import Accelerator\nit = Accelerator()\nif it.is_main_process:", "only rank 0"),
        (
            "from accelerate import Accelerator\nit = Accelerator()\nif it.is_local_main_process:",
            "only rank 0",
        ),
        ("from accelerate import Accelerator\nit = Accelerator()\nif it.is_last_process:", "only rank 3"),
        (
            "from accelerate import Accelerator\nit = Accelerator()\nif not it.is_last_process:",
            "only ranks other than 3",
        ),
        ("from lightning import Trainer\nit = Trainer()\nif it.is_global_zero:", "only rank 0"),
        ("from transformers import Trainer\nit = Trainer()\nif it.is_world_process_zero():", "only rank 0"),
        ("from transformers import Trainer\nit = Trainer()\nif it.is_local_process_zero():", "only rank 0"),
        (
            "from transformers import TrainingArguments\nit = TrainingArguments('o')\nif it.should_save:",
            "only rank 0",
        ),
        (
            "from transformers import TrainingArguments\nit = TrainingArguments('o')\nif it.process_index:",
            "only ranks other than 0",
        ),
    ],
)
def test_whom_a_condition_lets_through(code, expected, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"{code}\n    print('here')\n")
    program = Program(str(script))
    (condition,) = program.conditions(Where(program.script, len(script.read_text().splitlines())))
    assert who(ranks_where(condition)) == expected

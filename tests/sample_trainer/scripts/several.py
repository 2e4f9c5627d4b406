"""Runs the trainer several times on the same ranks: ``several.py NAME=WORD+WORD...``; each in a folder of its name.

Prints, for each, the exit status. There is one process group for all of them: a second one on the same port could
meet the first, which one rank leaves later than another.
"""

import functools
import sys
from pathlib import Path

TRAINER = Path(__file__).parents[3] / "sample_trainer"
sys.path.insert(0, str(TRAINER))

import trainer  # noqa: E402 - after the path that leads to it

joined = functools.cache(lambda: trainer_set_up(trainer.read_command_line().parallel))
trainer_set_up, leave = trainer.set_up, trainer.shut_down
trainer.set_up = lambda parallel: joined()
trainer.shut_down = lambda: None

for argument in sys.argv[1:]:
    name, _, words = argument.partition("=")
    sys.argv = ["trainer.py", *words.split("+"), f"run.folder={name}"]
    status = 0
    try:
        trainer.main()
    except SystemExit as ended:
        status = ended.code
    print(name, status, flush=True)
leave()

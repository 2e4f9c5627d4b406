"""Runs the trainer several times on the same ranks: ``several.py NAME=WORD+WORD...``; each in a folder of its name.

Prints, for each, the exit status. The process group is joined and left each time, as by a process of its own.
"""

import sys
from pathlib import Path

TRAINER = Path(__file__).parents[3] / "sample_trainer"
sys.path.insert(0, str(TRAINER))

import trainer  # noqa: E402 - after the path that leads to it

for argument in sys.argv[1:]:
    name, _, words = argument.partition("=")
    sys.argv = ["trainer.py", *words.split("+"), f"run.folder={name}"]
    status = 0
    try:
        trainer.main()
    except SystemExit as ended:
        status = ended.code
    print(name, status, flush=True)

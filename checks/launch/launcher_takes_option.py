from ddpdoctor.check import Check
from ddpdoctor.failures import Message
from ddpdoctor.recorder.launchers import COMMANDS

_LAUNCHERS = rf"(?P<launcher>{'|'.join(COMMANDS)}|launch\.py|run\.py)"


class LauncherTakesOption(Check):
    """The launcher interpreted one of the script's options as its own.

    What it finds:
        torchrun or another launcher that ends with a usage message, because it found an option of the script
        ambiguous or unknown, or found no script.

    Why it matters:
        A launcher reads every option before the script's name as its own, and torchrun also accepts abbreviations of
        its options after it. The job does not start, or the launcher uses a value that was meant for the script.

    Example:
        An option that torchrun takes for an abbreviation of its own:
            torchrun train.py --log runs/1      # ambiguous option: --log could match --log-dir, --log_dir, ...

    Fix:
        Put -- before the script, or rename the script's option:
            torchrun --nproc-per-node 4 -- train.py --log runs/1
    """

    code = "DD008"
    title = "the launcher does not take the script's options"
    messages = (
        Message(
            rf"{_LAUNCHERS}: error: (?:ambiguous option:|unrecognized arguments:|argument) (?P<option>[^\s:]+)",
            headline="{launcher} refused {option!r}",
        ),
        Message(
            rf"{_LAUNCHERS}: error: the following arguments are required: training_script",
            headline="{launcher} found no script to start",
        ),
    )

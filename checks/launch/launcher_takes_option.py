from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Judgement
from ddpdoctor.redact import quote

_LAUNCHERS = r"(?P<launcher>torchrun|launch\.py|run\.py|accelerate|deepspeed)"
_AMBIGUOUS = rf"{_LAUNCHERS}: error: ambiguous option: (?P<option>\S+) could match"
_UNKNOWN = (
    rf"{_LAUNCHERS}: error: (?:unrecognized arguments: (?P<option>\S+)|argument (?P<argument>[^:]+): .*)"
)
_NO_SCRIPT = rf"{_LAUNCHERS}: error: the following arguments are required: (?P<option>training_script)"


class LauncherTakesOption(Check):
    """The launcher interpreted one of the script's options as its own.

    What it finds:
        torchrun or another launcher that ends with a usage message, because it found an option of the script
        ambiguous or unknown, or found no script.

    Why it matters:
        A launcher reads every option before the script's name as its own, and torchrun also accepts abbreviations of
        its options after it. The job does not start, or the launcher uses a value that was meant for the script.

    Example:
        torchrun train.py --log runs/1      # ambiguous option: --log could match --log-dir, --log_dir, ...

    Fix:
        Put -- before the script, or rename the script's option:
            torchrun --nproc-per-node 4 -- train.py --log runs/1
    """

    code = "DD008"
    title = "the launcher does not take the script's options"
    log_words = (": error: ",)

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_AMBIGUOUS, _NO_SCRIPT, _UNKNOWN)
        groups = {name: value for name, value in reason.match.groupdict().items() if value}
        option = groups.get("option") or groups.get("argument") or ""
        what = "found no script to start" if option == "training_script" else f"refused {quote(option)}"
        return self.fail(f"{groups['launcher']} {what}", **log_fields(reason))

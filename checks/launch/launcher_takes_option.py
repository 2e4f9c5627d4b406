from ddpdoctor.check import Check
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.model import Family, Judgement
from ddpdoctor.redact import quote

_LAUNCHERS = r"(?P<launcher>torchrun|launch\.py|run\.py|accelerate|deepspeed)"
_AMBIGUOUS = rf"{_LAUNCHERS}: error: ambiguous option: (?P<option>\S+) could match"
_UNKNOWN = (
    rf"{_LAUNCHERS}: error: (?:unrecognized arguments: (?P<option>\S+)|argument (?P<argument>[^:]+): .*)"
)
_NO_SCRIPT = rf"{_LAUNCHERS}: error: the following arguments are required: (?P<option>training_script)"


class LauncherTakesOption(Check):
    """The launcher took an option of the script for its own.

    What it finds:
        torchrun (or another launcher) that ends with a usage message: it scans all arguments for its own options,
        also for their beginnings, so that a script's --log is "ambiguous", and options before the script's name are
        always the launcher's.

    Why it matters:
        Nothing was started. Or worse, where the launcher has such an option, it took the script's value.

    Example:
        torchrun train.py --log runs/1      # ambiguous option: --log could match --log-dir, --log_dir, ...

    Fix:
        Rename the option, or put -- before the script: torchrun --nproc-per-node 4 -- train.py --log runs/1
    """

    code = "DD008"
    name = "launcher-takes-option"
    family = Family.LAUNCH
    title = "the launcher leaves the script's options alone"
    log_words = (": error: ",)

    def examine_log(self, log: Log) -> Judgement:
        told = log.told(_AMBIGUOUS, _NO_SCRIPT, _UNKNOWN)
        if told is None:
            return UNSAID
        said = {name: value for name, value in told.match.groupdict().items() if value}
        option = said.get("option") or said.get("argument") or ""
        what = "found no script to start" if option == "training_script" else f"refused {quote(option)}"
        return self.fail(
            f"{said['launcher']} {what}",
            why="A launcher reads every option up to the script's name as its own, and looks among the script's "
            "options too for what may be the beginning of one of its own.",
            fix="torchrun LAUNCHER-OPTIONS -- train.py SCRIPT-OPTIONS; or rename the script's option",
            **told_by(*told.by),
        )

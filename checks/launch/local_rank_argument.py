from ddpdoctor.check import Check
from ddpdoctor.logs.log import Log, log_fields
from ddpdoctor.model import Judgement

_REJECTED = (
    r"(?:unrecognized arguments:.*?|[Nn]o such option:? |Unknown command line flag ')"
    r"(?P<option>(?:--)?local[-_]rank)\b"
)


class LocalRankArgument(Check):
    """The launcher passes the script --local-rank, which the script does not accept.

    What it finds:
        A script whose parser refuses --local-rank or --local_rank, which torch.distributed.launch appends to the
        script's arguments. From torch 2.0 it writes the option with a hyphen, before with an underscore.

    Why it matters:
        Every rank ends with exit status 2 and a usage message before it has done anything.

    Example:
        parser.add_argument("--local_rank", type=int)
        python -m torch.distributed.launch train.py      # torch 2: error: unrecognized arguments: --local-rank=0

    Fix:
        Start with torchrun, which passes no option, and read the environment:
            local_rank = int(os.environ["LOCAL_RANK"])
        Or let the parser know both: parser.add_argument("--local-rank", "--local_rank", type=int)
    """

    code = "DD007"
    title = "the script accepts the local rank as the launcher passes it"
    log_words = ("unrecognized arguments", "o such option", "Unknown command line flag")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_REJECTED)
        return self.fail(
            f"the script did not know the option {reason.match['option']} that the launcher gave it",
            why="torch.distributed.launch appends the local rank to the script's arguments, with a hyphen since "
            "torch 2.0 and with an underscore before. The script's parser knows the other spelling, or neither.",
            fix='local_rank = int(os.environ["LOCAL_RANK"])     # and start with torchrun\nor '
            'parser.add_argument("--local-rank", "--local_rank", type=int)',
            **log_fields(reason),
        )

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
        A script whose argument parser rejects --local-rank or --local_rank.

    Why it matters:
        torch.distributed.launch appends the local rank to the script's arguments, with a hyphen since torch 2.0 and
        with an underscore before. A parser that knows the other spelling, or neither, ends every rank at once.

    Example:
        parser.add_argument("--local_rank", type=int)
        python -m torch.distributed.launch train.py      # torch 2: error: unrecognized arguments: --local-rank=0

    Fix:
        Start with torchrun, which passes no option, and read the environment variable:
            local_rank = int(os.environ["LOCAL_RANK"])
        Or accept both spellings:
            parser.add_argument("--local-rank", "--local_rank", type=int)
    """

    code = "DD007"
    title = "the script accepts the local rank as the launcher passes it"
    patches = ("local_rank_option",)
    log_words = ("unrecognized arguments", "o such option", "Unknown command line flag")

    def examine_log(self, log: Log) -> Judgement:
        reason = log.reason(_REJECTED)
        headline = f"the script did not know the option {reason.match['option']} that the launcher gave it"
        return self.fail(headline, **log_fields(reason))

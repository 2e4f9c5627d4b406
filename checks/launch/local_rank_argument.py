from ddpdoctor.check import Check
from ddpdoctor.failures import Message

_OPTION = r"(?P<option>(?:--)?local[-_]rank)\b"


class LocalRankArgument(Check):
    """The script and its launcher disagree about the option --local-rank.

    What it finds:
        A script whose argument parser rejects --local-rank or --local_rank, or requires it where the launcher passes
        no option.

    Why it matters:
        torch.distributed.launch appends the local rank to the script's arguments, with a hyphen since torch 2.0 and
        with an underscore before; torchrun appends nothing. A parser that knows the other spelling or neither, or that
        requires the option under torchrun, ends every rank at once.

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
    messages = (
        Message(
            r"(?:unrecognized arguments:.*?|[Nn]o such option:? |Unknown command line flag '|Could not consume arg: )"
            + _OPTION,
            headline="the script did not know the option {option} that the launcher gave it",
        ),
        Message(
            rf"(?:arguments are required:.*?|Missing option ['\"]?(?:-\w['\"]? / ['\"]?)?){_OPTION}",
            headline="the script requires the option {option}, which the launcher did not give it",
        ),
    )

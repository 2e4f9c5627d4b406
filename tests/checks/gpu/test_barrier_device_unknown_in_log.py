from ddpdoctor.model import Source
from tests.support.judging import passed
from tests.support.logs import TRAINING, log, names

NAMED = [
    (
        "[rank0]:[W] using GPU 0 to perform barrier as devices used by this process are currently unknown. This can\n",
        "the first barrier guessed the GPU of its rank, and nothing followed",
    ),
    (
        "[rank0]:[W] using GPU 0 as device used by this process is currently unknown.\n(no further output)\n",
        "the first barrier guessed the GPU of its rank, and nothing followed",
    ),
]

test_it_is_named = names("DD810", NAMED)


def test_training_that_goes_on_was_a_good_guess():
    text = f"[rank0]:[W] using GPU 0 as device used by this process is currently unknown.\n{TRAINING}"
    passed("DD810", Source.LOG, log(text))

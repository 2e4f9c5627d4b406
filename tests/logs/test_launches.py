import json

import pytest

from tests.support.logs import TRAINING, explained, raised, summary
from tests.support.waits import stopped

BANNER = (
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid overload.\n"
)
FIRST = BANNER + raised(0, "ValueError", "first") + summary(0)


@pytest.mark.parametrize("begin", [BANNER, "$ torchrun train.py\n", "user@node-a:~$ python train.py\n"])
def test_the_last_launch_is_judged(begin):
    (finding,) = explained(FIRST + begin + raised(1, "KeyError", "'second'"))
    assert finding.headline == "rank 1 failed with KeyError \"'second'\""


def test_a_launch_that_went_well_after_one_that_failed_is_healthy():
    assert explained(FIRST + BANNER + TRAINING) == ()


def test_a_launch_that_says_nothing_leaves_the_one_before():
    assert explained(FIRST + BANNER)[0].headline == "rank 0 failed with ValueError 'first'"


def test_launchers_of_several_nodes_are_one_launch():
    text = BANNER + BANNER + raised(0, "ValueError", "first") + TRAINING
    assert explained(text)[0].headline == "rank 0 failed with ValueError 'first'"


def test_the_traceback_in_an_error_file():
    stack = "Traceback (most recent call last):\n  File \"/home/user/t.py\", line 3, in f\n    f()\nKeyError: 'dog'"
    file = {"message": {"message": "KeyError: 'dog'", "extraInfo": {"py_callstack": stack, "timestamp": "1"}}}
    (finding,) = explained(json.dumps(file))
    assert finding.headline == "a process failed with KeyError \"'dog'\""
    assert finding.where is not None
    assert finding.where.line == 3


@pytest.mark.parametrize(
    "last", ["Training finished in 0:12:44", "done", "[rank0]: saved checkpoint to out/9.pt"]
)
def test_a_training_that_says_it_is_done_has_survived_what_stands_above(last):
    assert explained(f"{TRAINING}CUDA out of memory in batch 3, which is left out\n{last}\n") == ()


def test_a_summary_contradicts_a_line_that_says_done():
    text = f"{TRAINING}CUDA out of memory in batch 3\n{summary()}cleanup done\n"
    assert explained(text)[0].code == "DD806"


def test_an_attempt_that_trained_after_one_that_failed_is_healthy():
    failed = "E0102 03:04:05 1 api.py:984] failed (exitcode: 1) local_rank: 1 (pid: 7) of binary: /usr/bin/python\n"
    assert explained(raised(1, "ValueError", "first") + failed + 8 * TRAINING) == ()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("cp: error writing '/scratch/out/9.pt': No space left on device", "DD019"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=88.0. Some of the step tasks died.",
            "DD017",
        ),
        ("[ 88.100000] NVRM: Xid (PCI:0000:3b:00): 79, pid=4, GPU has fallen off the bus.", "DD805"),
    ],
)
def test_an_epilogue_that_is_done_does_not_hide_what_the_system_said_after_the_training(line, code):
    assert explained(f"{TRAINING}{line}\nstage out done\n")[0].code == code
    assert explained(f"{TRAINING}{line}\n{TRAINING}stage out done\n") == ()


def test_the_text_of_help_is_no_error():
    text = (
        'usage: fit.py [-h]\noptions:\n  --retries N   how often to retry after "No space left on device"\n'
    )
    assert explained(text) == ()


def of_task(task, text):
    return "".join(f"{task}: {line}\n" for line in text.splitlines())


def test_the_number_of_a_task_that_is_a_launcher_is_no_rank():
    unlabelled = raised(1, "OSError", "no shard").replace("[rank1]: ", "")
    ended = "failed (exitcode: 1) local_rank: 4 (pid: 100) of binary: python\n" + summary(12).replace(
        "rank: 12", "rank: 4"
    )
    text = of_task(1, unlabelled + ended) + "srun: error: node-b: task 1: Exited with exit code 1\n"
    (finding,) = explained(text)
    assert (finding.code, finding.ranks) == ("DD304", (12,))
    (finding,) = explained(of_task(1, unlabelled) + "srun: error: node-b: task 1: Exited with exit code 1\n")
    assert finding.ranks == (1,)


def test_a_signal_that_ends_a_task_of_ranks_names_the_host_and_no_rank():
    text = of_task(1, BANNER + TRAINING) + "srun: error: node-b: task 1: Out Of Memory\n"
    (finding,) = explained(text)
    assert (finding.code, finding.ranks) == ("DD017", ())


def test_the_number_of_a_step_is_no_training():
    text = (
        "srun: error: Task launch for StepId=36.0 failed on node node-b: Job credential expired\n"
        "slurmstepd: error: *** STEP 36.0 ON node-a CANCELLED AT 2026-01-02T03:04:05 ***\n"
    )
    (finding,) = explained(text)
    assert finding.headline.startswith("the job did not start: srun: error: Task launch")


@pytest.mark.parametrize("label", ["", "[rank1]: "])
def test_a_traceback_and_a_rank_in_json_behind_a_label(label):
    stack = "Traceback (most recent call last):\n  File \"/home/user/t.py\", line 3, in f\n    f()\nKeyError: 'dog'"
    (finding,) = explained(label + json.dumps({"level": "error", "rank": 1, "exc": stack}) + "\n" + TRAINING)
    assert finding.headline == "rank 1 failed with KeyError \"'dog'\""


def test_ranks_in_the_text_of_json_keep_to_it():
    (finding,) = explained(json.dumps({"payload": {"message": raised(1, "KeyError", "1"), "level": "ERROR"}}))
    assert finding.headline == "rank 1 failed with KeyError '1'"


def test_a_local_rank_in_a_label_is_that_of_its_node():
    text = raised(1, "KeyError", "'cat'").replace("[rank1]", "[default1]")
    ended = summary(12).replace("local_rank: 12", "local_rank: 4")
    assert explained(text + ended)[0].ranks == (9,)
    first_node = stopped(7) + summary(1, -15, 7)
    other_node = summary(9).replace("local_rank: 9", "local_rank: 1")
    assert explained(text + first_node + other_node)[0].ranks == (9,)
    assert explained(text + summary(1))[0].ranks == (1,)
    assert explained(text + summary(1), TRAINING + ended.replace("pid: 100", "pid: 9"))[0].ranks == (1,)


def test_the_status_of_a_task_is_all_that_is_known_where_no_rank_tells_of_its_end():
    text = of_task(0, BANNER + TRAINING) + "srun: error: node-b: task 1: Exited with exit code 1\n"
    (finding,) = explained(text)
    assert finding.headline == "a process ended with exit status 1, and the output does not show why"


@pytest.mark.parametrize("end", ["", ",", " "])
def test_a_line_of_json_may_go_on_behind_its_object(end):
    stack = "Traceback (most recent call last):\n  File \"/home/user/t.py\", line 3, in f\n    f()\nKeyError: 'dog'"
    text = json.dumps({"message": stack, "rank": 1}) + end + "\n"
    assert explained(text)[0].headline == "rank 1 failed with KeyError \"'dog'\""


@pytest.mark.parametrize(
    ("more", "ranks"), [({"lora": {"rank": 16}}, ()), ({"of": {"a": 1}, "rank": 2}, (2,))]
)
def test_a_rank_in_json_is_that_of_its_outermost_object(more, ranks):
    stack = "Traceback (most recent call last):\n  File \"/home/user/t.py\", line 3, in f\n    f()\nKeyError: 'dog'"
    assert explained(json.dumps({**more, "message": stack}))[0].ranks == ranks

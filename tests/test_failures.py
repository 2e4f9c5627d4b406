"""A message means the same to a recorded run and to a job's output."""

import re

import pytest

from ddpdoctor import failures, registry
from ddpdoctor.blame.frames import Failure
from ddpdoctor.check import Check
from ddpdoctor.failures import Message
from ddpdoctor.judge import judge
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.logs.secondary_errors import own_causes
from ddpdoctor.model import Family, Source
from tests.support.logs import log, raised

REQUESTS = "/usr/lib/python3/dist-packages/requests/adapters.py"
OF_VICTIMS = [
    ("torch.distributed.DistNetworkError", "failed to recv, got 0 bytes"),
    ("RuntimeError", "[pair.cc:534] Connection closed by peer [10.0.0.1]:4711"),
    ("RuntimeError", "[pair.cc:144] connect [127.0.0.1]:4711: Connection refused"),
    ("RuntimeError", "[pair.cc:537] Timed out waiting 4000ms for recv operation to complete"),
    ("RuntimeError", "NCCL error: remote process has exited or there was a network error"),
    ("torch.distributed.DistBackendError", "NCCL error: ncclRemoteError: a call failed"),
    ("ray.exceptions.ActorDiedError", "The actor died unexpectedly before finishing this task"),
    ("RuntimeError", "Rank 0 successfully reached monitoredBarrier, but received errors while waiting"),
]
OF_CAUSES = [
    ("ConnectionRefusedError", "[Errno 111] Connection refused"),
    ("KeyError", "'peer'"),
    ("ValueError", "the process at /data/remote has no samples"),
    ("TimeoutError", "the database did not answer"),
    ("RuntimeError", "expected 0 bytes, got 4"),
]


def is_a_cause_in_output(kind: str, message: str, file: str = "/home/user/train.py") -> bool:
    return bool(own_causes(log(raised(1, kind, message, file))))


def is_a_cause_in_a_run(kind: str, message: str, file: str = "/home/user/train.py") -> bool:
    traceback = f'Traceback (most recent call last):\n  File "{file}", line 12, in main\n    step()\n{kind}: {message}'
    return not Failure(kind, message, traceback, 1.0).of_a_victim


@pytest.mark.parametrize("is_a_cause", [is_a_cause_in_output, is_a_cause_in_a_run])
class TestWherever:
    @pytest.mark.parametrize(("kind", "message"), OF_VICTIMS)
    def test_what_a_victim_says_is_no_cause(self, is_a_cause, kind, message):
        assert not is_a_cause(kind, message)

    @pytest.mark.parametrize(("kind", "message"), OF_CAUSES)
    def test_what_names_no_peer_is_a_cause(self, is_a_cause, kind, message):
        assert is_a_cause(kind, message)

    def test_a_lost_connection_to_a_service_is_a_cause(self, is_a_cause):
        lost = ("ConnectionError", "('Connection aborted.', RemoteDisconnected('closed without response'))")
        assert is_a_cause(*lost, file=REQUESTS)
        assert not is_a_cause(*lost)

    def test_a_key_of_the_store_that_the_script_asked_for_is_a_cause(self, is_a_cause):
        waited = ("torch.distributed.DistStoreError", "wait timeout after 4000ms, keys: /best")
        assert is_a_cause(*waited)
        assert not is_a_cause(
            *waited, file="/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py"
        )


class StoreFull(Check):
    """The store is full."""

    code = "DD099"
    name = "store-full"
    family = Family.LAUNCH
    title = "the store has room"
    messages = (
        Message(
            r"[Ss]tore of rank (?P<owner>\d+) (?:is full|has no room) \(\d+ keys?\)",
            headline="{rank} could not write to the store of rank {owner}",
            why="Rank {owner} keeps the keys.",
            fix="use fewer keys",
        ),
    )


class TestARowIsAllThatANewMessageTakes:
    @pytest.mark.parametrize(
        "text",
        [
            "[rank3]: W1127 10:00:00.123 store of rank 0 has no room (1048576 keys)\n",
            raised(3, "RuntimeError", "Store of rank 0 is full (1 key)"),
        ],
    )
    def test_a_line_and_an_exception(self, text):
        check = StoreFull()
        output = read([Stream("job.log", [text.encode()])], root_cause.words([check]))
        ((finding,),) = (verdict.findings for verdict in judge(Source.LOG, [check], output, print))
        assert finding.headline == "rank 3 could not write to the store of rank 0"
        assert (finding.why, finding.fix, finding.ranks) == (
            "Rank 0 keeps the keys.",
            "use fewer keys",
            (3,),
        )

    def test_an_exception_of_a_run(self):
        assert StoreFull.is_raised_as("RuntimeError: Store of rank 0 is full (1 key)")
        assert not StoreFull.is_raised_as("RuntimeError: the disk is full")

    def test_other_output(self):
        output = read([Stream("job.log", [b"epoch 1 done\n"])], root_cause.words([StoreFull()]))
        assert not [
            it for verdict in judge(Source.LOG, [StoreFull()], output, print) for it in verdict.findings
        ]


class TestWords:
    @pytest.mark.parametrize(
        ("pattern", "words"),
        [
            ("out of memory", {"out of memory"}),
            (r"rank \d+ of \d+ ranks has checked in", {" ranks has checked in"}),
            ("socket (?:closed|reset)", {"socket "}),
            ("closed by peer|Broken pipe", {"closed by peer", "Broken pipe"}),
            ("[Cc]onnection (?:was )?reset", {"onnection "}),
            ("ncclInvalidUsage(?!: ok)", {"ncclInvalidUsage"}),
            ("(?:lost connection)+|(?:gone)*", set()),
            ("(?i)out of memory", set()),
            (r"\d+", set()),
        ],
    )
    def test_what_each_match_has(self, pattern, words):
        assert failures.words(pattern) == words

    def test_each_message_can_be_found_by_its_words(self):
        for check in registry.all_checks():
            for message in check.messages:
                assert failures.words(message.pattern), f"{check.code}: {message.pattern}"
                assert all(len(word) > 4 for word in failures.words(message.pattern)), message.pattern

    def test_no_pattern_stands_twice(self):
        patterns = [row.pattern for check in registry.all_checks() for row in check.messages]
        patterns += [row.pattern for row in failures.TABLE]
        assert len(patterns) == len({*patterns})
        assert all(re.compile(pattern) for pattern in patterns)

"""Verdicts of jobs of which nothing is known but stacks, as ``ddpdoctor hang`` looks at them."""

from dataclasses import replace

import pytest

from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.model import Confidence, Level, Source
from tests.support.diagnosis import Diagnosis, diagnosis_of
from tests.support.hangs import (
    backward,
    collective,
    forward,
    hung,
    loader,
    process,
    python,
    queue,
    script,
    snapshot,
    torch,
    worker,
)
from tests.support.judging import only_finding, skipped

BARRIER = collective("barrier", 30)


def judged(still: HangSnapshot) -> Diagnosis:
    found = diagnosis_of(hung(still))
    assert found is not None
    return found


def test_a_rank_in_a_queue_is_to_blame_and_not_the_many_in_the_barrier():
    found = judged(snapshot({0: BARRIER, 1: queue(12), 2: BARRIER}))
    assert (found.code, found.culprits, found.waiting) == ("DD307", (1,), (0, 2))
    assert found.headline == (
        "rank 1 waits in Queue.get at train.py:12, while ranks 0, 2 wait in barrier at train.py:30"
    )
    assert found.where is not None
    assert found.where.line == 12
    texts = [(one.text, one.ranks) for one in found.evidence]
    assert texts[0] == ("waits in barrier at train.py:30", (0, 2))
    assert "ranks 0, 2:" in texts[-1][0]


def test_who_asks_the_store_waits_for_the_rank_that_would_set_the_key(tmp_path):
    file = tmp_path / "train.py"
    file.write_text('name = default_store().get("name")\n')
    asks = (script(1, file=str(file)),)
    alone = judged(snapshot({0: BARRIER, 1: asks}))
    assert (alone.code, alone.culprits) == ("DD307", (1,))
    assert alone.headline.startswith("rank 1 waits in store.get at")
    assert judged(snapshot({0: BARRIER, 1: asks, 2: queue(12)})).culprits == (2,)
    works = process(2, (script(7),), doing=Doing.COMPUTES)
    found = judged(snapshot({0: BARRIER, 1: asks, 2: works}))
    assert (found.code, found.culprits) == ("DD306", (2,))


def test_a_rank_at_the_prompt_of_the_debugger():
    prompt = (script(9), python("bdb.py", "Bdb.trace_dispatch"), python("cmd.py", "Pdb.cmdloop"))
    found = judged(snapshot({0: BARRIER, 1: process(1, prompt, call="read of a pipe")}))
    assert (found.code, found.culprits) == ("DD307", (1,))
    assert found.headline.startswith("rank 1 waits for input on its standard input at train.py:9")


def test_the_many_are_blamed_where_they_are_the_ones_elsewhere():
    found = judged(snapshot({0: backward(20), 1: queue(12), 2: queue(12), 3: queue(12)}))
    assert (found.code, found.culprits, found.waiting) == ("DD307", (1, 2, 3), (0,))
    assert found.headline.startswith("ranks 1-3 wait in Queue.get")


def test_of_a_stuck_worker_the_line_in_the_dataset_is_named():
    still = snapshot({0: backward(20), 1: loader(18)}, worker(1, 7, python("threading.py", "Lock.acquire")))
    found = judged(still)
    assert (found.code, found.culprits) == ("DD307", (1,))
    assert found.where is not None
    assert (found.where.file, found.where.line) == ("data.py", 7)
    assert "worker process 5001 is at data.py:7" in found.headline
    assert any("_worker_loop" in one.text for one in found.evidence)


def test_a_worker_that_is_stopped_is_named_before_one_at_work():
    at_work = worker(1, 7)
    stopped = replace(at_work, pid=5002, doing=Doing.STOPPED)
    found = judged(snapshot({0: backward(20), 1: loader(18)}, at_work, stopped))
    assert (found.code, found.culprits) == ("DD307", (1,))
    assert "; worker process 5002 is stopped, by SIGSTOP or a debugger at data.py:7" in found.headline
    assert "kill -CONT" in found.fix


def test_an_idle_worker_is_not_taken_for_the_stuck_one():
    idle = process(1, (torch("utils/data/_utils/worker.py", "_worker_loop"), python("queue.py", "get")))
    found = judged(snapshot({0: backward(20), 1: loader(18)}, replace(idle, role=ProcessRole.WORKER)))
    assert found.where is not None
    assert found.where.line == 18


def test_a_sample_that_sleeps_in_the_rank_itself_is_stuck():
    stack = (
        script(18),
        torch("utils/data/dataloader.py", "_SingleProcessDataLoaderIter._next_data"),
        torch("utils/data/_utils/fetch.py", "fetch"),
        script(7, "Images.__getitem__", "data.py"),
    )
    found = judged(snapshot({0: backward(20), 1: process(1, stack, doing=Doing.SLEEPS)}))
    assert (found.code, found.culprits) == ("DD307", (1,))
    assert found.where is not None
    assert found.where.file == "data.py"


@pytest.mark.parametrize(
    ("below", "call", "said"),
    [
        ((python("subprocess.py", "Popen.wait"),), "wait4", "waits for a process that it started"),
        ((python("socket.py", "SocketIO.readinto"),), "recvfrom", "waits in SocketIO.readinto, in recvfrom"),
        ((python("multiprocessing/queues.py", "Queue.put"),), "futex", "waits in Queue.put"),
        ((), "read of a pipe", "waits in read of a pipe"),
        ((), "flock", "waits in flock"),
        ((), "futex", "waits in a lock, or for another thread"),
        ((), "recvfrom of a socket", "waits in recvfrom of a socket"),
        ((), "openat", "waits in open"),
        ((), "wait4", "waits for a process that it started"),
        ((python("concurrent/futures/_base.py", "Future.result"),), "futex", "waits in Future.result"),
        (
            (python("multiprocessing/connection.py", "Connection.recv"),),
            "read of a pipe",
            "waits in Connection.recv, in read of a pipe",
        ),
    ],
)
def test_what_blocks_is_said(below, call, said):
    stack = (script(12), *below)
    found = judged(snapshot({0: BARRIER, 1: process(1, stack, call=call)}))
    assert found.code == "DD307"
    assert found.headline.startswith(f"rank 1 {said} at train.py:12")


@pytest.mark.parametrize(
    ("call", "advice"),
    [("flock", "acquire(timeout"), ("recvfrom of a socket", "settimeout"), ("openat", "its other end")],
)
def test_advice_fits_the_system_call(call, advice):
    found = judged(snapshot({0: BARRIER, 1: process(1, (script(12),), call=call)}))
    assert advice in found.fix


def test_a_stopped_rank_has_no_stack_and_is_to_blame():
    found = judged(snapshot({0: BARRIER, 1: process(1, (), doing=Doing.STOPPED), 2: BARRIER}))
    assert (found.code, found.culprits) == ("DD307", (1,))
    assert "is stopped, by SIGSTOP or a debugger" in found.headline
    assert "kill -CONT" in found.fix


@pytest.mark.parametrize(
    ("doing", "verb"), [("computes", "works"), ("disk", "reads or writes"), ("sleeps", "sleeps")]
)
def test_who_works_alone_is_late_and_not_stuck(doing, verb):
    busy = process(0, (script(12, "prepare"),), doing=Doing(doing))
    found = judged(snapshot({0: busy, 1: BARRIER, 2: BARRIER}, timeout=1800.0))
    assert (found.code, found.culprits, found.level) == ("DD306", (0,), Level.FAIL)
    assert found.headline == (
        f"rank 0 {verb} at train.py:12 for 7 s, while ranks 1-2 wait in barrier at train.py:30"
    )
    assert "1800 s" in found.why


def test_work_that_the_time_limit_ended_is_a_warning():
    busy = process(0, (script(12, "prepare"),), doing=Doing.COMPUTES)
    trace = hung(snapshot({0: busy, 1: BARRIER}), out_of_time=True)
    assert only_finding("DD306", Source.RUN, trace).level is Level.WARN


def test_where_nothing_is_known_of_what_a_rank_does_its_line_is_named():
    found = judged(snapshot({0: process(0, (script(12),), doing=Doing.UNKNOWN, again=()), 1: BARRIER}))
    assert (found.code, found.culprits) == ("DD301", (0,))
    assert found.headline == "rank 0 is at train.py:12, while rank 1 waits in barrier at train.py:30"


def test_ranks_in_different_collectives_are_told_side_by_side():
    found = judged(snapshot({0: BARRIER, 1: backward(20), 2: backward(20)}))
    assert (found.code, found.culprits, found.confidence) == ("DD302", (0,), Confidence.LIKELY)
    assert found.headline == (
        "rank 0 waits in barrier at train.py:30, ranks 1-2 wait in backward at train.py:20"
    )


def test_half_against_half_blames_both():
    assert judged(snapshot({0: BARRIER, 1: forward(20)})).culprits == (0, 1)


def test_one_operation_on_two_lines_is_a_mismatch():
    found = judged(snapshot({0: collective("all_reduce", 5), 1: collective("all_reduce", 9)}))
    assert found.code == "DD302"


def test_ranks_that_wait_in_one_place_blame_what_is_between_them():
    found = judged(snapshot({rank: BARRIER for rank in range(4)}))
    assert (found.code, found.culprits) == ("DD301", ())
    assert found.headline == "all of ranks 0-3 wait in barrier at train.py:30, and none is late"


def test_a_rank_that_is_not_there_is_missed():
    found = judged(snapshot({0: BARRIER, 1: BARRIER}, world_size=3))
    assert (found.code, found.culprits, found.confidence) == ("DD301", (2,), Confidence.LIKELY)


def test_what_is_here_comes_before_what_was_not_seen():
    assert judged(snapshot({0: BARRIER, 1: queue(12)}, world_size=4)).culprits == (1,)


def test_new_group_called_by_its_members_alone():
    inside = (*collective("new_group", 8), torch("distributed/distributed_c10d.py", "_store_based_barrier"))
    found = judged(snapshot({0: inside, 1: inside, 2: BARRIER}))
    assert (found.code, found.culprits) == ("DD309", (0, 1))
    assert found.headline == "only ranks 0-1 called new_group, and wait there, and rank 2 did not"


def test_a_wait_for_an_asynchronous_collective_is_told_by_native_frames():
    waiting = process(0, (script(9),), native=("c10d::ProcessGroupGloo::AsyncWork::wait (libtorch_cpu.so)",))
    found = judged(snapshot({0: waiting, 1: queue(12)}))
    assert (found.culprits, found.waiting) == ((1,), (0,))


def test_an_object_collective_goes_by_the_name_that_the_script_called():
    stack = (*collective("all_gather_object", 8), torch("distributed/distributed_c10d.py", "all_gather"))
    assert "all_gather_object at train.py:8" in judged(snapshot({0: stack, 1: queue(12)})).headline


def test_forward_of_layers_is_no_wait():
    inside = (
        *forward(20)[:3],
        torch("nn/modules/linear.py", "Linear.forward"),
    )
    found = judged(snapshot({0: process(0, inside, doing=Doing.COMPUTES), 1: BARRIER}))
    assert (found.code, found.culprits) == ("DD306", (0,))


def test_nobody_who_waits_for_a_rank_is_no_hang():
    busy = {rank: process(rank, (script(12),), doing=Doing.COMPUTES) for rank in range(2)}
    assert diagnosis_of(hung(snapshot(busy))) is None
    assert diagnosis_of(hung(snapshot({0: queue(3), 1: busy[1]}))) is None


def test_everybody_blocked_outside_of_collectives():
    found = judged(snapshot({0: queue(3), 1: queue(3)}))
    assert (found.code, found.culprits, found.waiting) == ("DD307", (0, 1), ())


def test_a_rank_that_has_gone_with_status_0():
    gone = SampledProcess(1001, 1, doing=Doing.GONE, exit_status=0)
    found = judged(snapshot({0: BARRIER, 1: gone}))
    assert (found.code, found.culprits) == ("DD305", (1,))


def test_what_could_not_be_seen_is_said():
    blind = process(2, (), doing=Doing.UNKNOWN, unseen="ptrace is not allowed: run as the same user")
    found = judged(snapshot({0: BARRIER, 1: queue(12), 2: blind}, unseen=("host node1 was not looked at",)))
    texts = [one.text for one in found.evidence]
    assert "ptrace is not allowed: run as the same user" in texts
    assert "host node1 was not looked at" in texts


@pytest.mark.parametrize("size", [64, 1024])
def test_one_of_many_is_found(size):
    stacks = {rank: BARRIER for rank in range(size)}
    stacks[size // 2] = queue(12)
    found = judged(snapshot(stacks))
    assert found.culprits == (size // 2,)
    assert len(found.evidence) == 3


def test_many_ranks_of_which_half_wait_for_the_other_half():
    stacks = {rank: BARRIER if rank % 2 else backward(20) for rank in range(1024)}
    assert judged(snapshot(stacks)).code == "DD302"


def test_the_other_checks_say_whose_it_is():
    trace = hung(snapshot({0: BARRIER, 1: queue(12)}))
    assert only_finding("DD307", Source.RUN, trace).ranks == (1,)
    for code in ("DD301", "DD302", "DD303", "DD305", "DD306", "DD308", "DD309"):
        assert skipped(code, Source.RUN, trace).reason == "the job hangs (DD307)"


def test_a_rank_that_waits_for_a_message_of_a_rank_in_the_barrier():
    waits = process(2, collective("recv", 21), peer=0)
    found = judged(snapshot({0: BARRIER, 1: BARRIER, 2: waits}))
    assert (found.code, found.culprits) == ("DD301", (0,))
    assert found.headline.startswith("rank 2 waits in recv at train.py:21 for rank 0, which waits in barrier")


def test_ranks_that_gather_to_different_ranks():
    gather = collective("gather", 16)
    found = judged(snapshot({rank: process(rank, gather, peer=rank % 2) for rank in range(3)}))
    assert (found.code, found.culprits) == ("DD302", (1,))
    assert found.headline.startswith(
        "ranks 0, 2 wait in gather to rank 0 at train.py:16, rank 1 waits in gather to rank 1 at train.py:16"
    )

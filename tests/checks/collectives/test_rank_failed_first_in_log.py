import pytest

from ddpdoctor.model import Role, Source, Where
from tests.support.judging import only_finding, passed, skipped
from tests.support.logs import TRAINING, explained, log, raised, summary

VICTIM = raised(
    0, "RuntimeError", "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:33177"
)


def test_the_first_exception_is_named_and_not_its_victims():
    text = VICTIM + raised(2, "ValueError", "sample 17 has no label", line=88) + summary(2)
    finding = only_finding("DD304", Source.LOG, log(text))
    assert finding.headline == "rank 2 failed with ValueError 'sample 17 has no label'"
    assert finding.where == Where("/home/user/train.py", 88, "main")
    assert (finding.ranks, finding.sighting.role, finding.sighting.line) == ((2,), Role.EXCEPTION, 8)
    assert [one.code for one in explained(text)] == ["DD304"]


def test_ranks_that_raised_the_same_are_one():
    text = "".join(raised(rank, "KeyError", "'label'") for rank in range(4))
    assert (
        only_finding("DD304", Source.LOG, log(text)).headline == "ranks 0-3 failed with KeyError \"'label'\""
    )


def test_the_cause_of_a_chain_is_shown():
    text = raised(1, "FileNotFoundError", "no such file") + (
        "[rank1]: \n[rank1]: The above exception was the direct cause of the following exception:\n[rank1]: \n"
    )
    finding = only_finding("DD304", Source.LOG, log(text + raised(1, "RuntimeError", "could not build")))
    assert finding.headline == "rank 1 failed with FileNotFoundError 'no such file'"
    assert "raised again as RuntimeError" in finding.why


def test_training_that_goes_on_has_caught_it():
    text = raised(1, "ValueError", "could not upload") + 8 * TRAINING
    assert passed("DD304", Source.LOG, log(text)).text == "no line of 12 reports a failure"


def test_victims_alone_name_no_cause():
    skipped("DD304", Source.LOG, log(VICTIM + summary(0)))


def test_a_lost_peer_at_the_same_line_is_no_failure_of_the_same_kind():
    text = raised(1, "RuntimeError", "invalid tensor size") + VICTIM + summary(1)
    assert explained(text)[0].ranks == (1,)


def test_of_files_of_single_ranks_the_launcher_names_the_first():
    late, first = raised(1, "ValueError", "late"), raised(2, "KeyError", "'first'")
    assert explained(late, first, summary(2))[0].headline == "rank 2 failed with KeyError \"'first'\""
    (unordered,) = explained(late, first)
    assert "rank 2 failed with KeyError, too" in unordered.why


@pytest.mark.parametrize(
    "line",
    [
        "train.py: error: argument --lr: invalid float value: 'fast'",
        "/opt/venv/bin/python3: can't open file '/home/user/trian.py': [Errno 2] No such file or directory",
        "/opt/venv/bin/python3.11: No module named trainer",
    ],
)
def test_a_script_that_did_not_begin(line):
    (finding,) = explained(f"{line}\n" + summary(0, 2))
    assert (finding.code, finding.ranks) == ("DD304", (0,))
    assert finding.headline == f"rank 0 ended at once: {line.removeprefix('/opt/venv/bin/')}"


def test_what_another_tool_refused_is_not():
    skipped("DD304", Source.LOG, log("srun: error: unrecognized option\n" + summary(0, 2)))


@pytest.mark.parametrize(
    ("kind", "message", "package"),
    [
        (
            "requests.exceptions.ConnectionError",
            "('Connection aborted.', ConnectionResetError(104, 'reset'))",
            "requests",
        ),
        (
            "botocore.exceptions.ConnectionClosedError",
            "Connection was closed before we received a response",
            "botocore",
        ),
        ("OSError", "the hub did not answer: Connection reset by peer", "transformers"),
    ],
)
def test_the_lost_connection_to_a_service_is_a_failure_of_its_own(kind, message, package):
    frame = f'  File "/opt/venv/lib/python3.11/site-packages/{package}/client.py", line 7, in send\n'
    text = raised(3, kind, message).replace(f"[rank3]: {kind}", f"[rank3]: {frame}[rank3]: {kind}")
    finding = explained(VICTIM + text)[0]
    assert (finding.code, finding.ranks) == ("DD304", (3,))
    assert finding.where == Where("/home/user/train.py", 12, "main")


def test_a_rank_that_its_launcher_told_to_end_is_no_cause():
    told = raised(0, "lightning.fabric.utilities.exceptions.SIGTERMException", "")
    assert explained(told + raised(3, "ValueError", "one value per channel"))[0].ranks == (3,)


def test_a_message_that_begins_with_a_heading_is_shown_with_its_first_line():
    message = "Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: [10, 4] and [8, 4]"
    (finding,) = explained(raised(1, "RuntimeError", message))
    assert finding.headline == (
        "rank 1 failed with RuntimeError 'Error(s) in loading state_dict for Net: size mismatch for head.weight: "
        "[10, 4] and [8, 4]'"
    )


@pytest.mark.parametrize(
    "line",
    [
        "slurm_script: line 14: torchrun: command not found",
        "slurmstepd: error: execve(): torchrun: No such file or directory",
        "srun: error: Unable to create step for job 812: More processors requested than permitted",
        "docker: Error response from daemon: could not select device driver",
        "There are not enough slots available in the system to satisfy the 8",
        "srun: error: Task launch for 36.0 failed on node cn131: Job credential expired",
        "node-b: ssh: Connection refused\npdsh@node-a: node-b: ssh exited with exit code 255",
    ],
)
def test_a_job_that_did_not_start(line):
    assert explained(f"+ module load cuda\n{line}\n")[0].headline.startswith("the job did not start: ")
    assert explained(f"{line}\n{TRAINING}") == ()
    assert explained(f"{line}\n" + 20 * "rank 0 is ready\n") == ()


def test_the_line_of_the_script_is_that_of_what_was_raised_again():
    inner = raised(1, "ValueError", "no compiler", file="/opt/venv/lib/python3.11/site-packages/torch/x.py")
    text = inner + (
        "[rank1]: \n[rank1]: The above exception was the direct cause of the following exception:\n[rank1]: \n"
    )
    (finding,) = explained(text + raised(1, "RuntimeError", "could not build", line=30))
    assert finding.headline == "rank 1 failed with ValueError 'no compiler'"
    assert finding.where == Where("/home/user/train.py", 30, "main")


@pytest.mark.parametrize("command", ["['rsync', '-a', 'a', 'b']", "['nvcc', '--version']"])
def test_a_command_that_the_script_ran_is_no_launcher(command):
    text = f"Command '{command}' returned non-zero exit status 12."
    (finding,) = explained(raised(0, "subprocess.CalledProcessError", text) + summary(0))
    assert (finding.code, finding.ranks) == ("DD304", (0,))


@pytest.mark.parametrize(
    "command",
    [
        "['/usr/bin/python', '-m', 'torch.distributed.run', 'x']",
        "['bash', 'train.py']",
        "['accelerate', 'launch']",
    ],
)
def test_a_command_that_starts_ranks_is(command):
    text = f"Command '{command}' returned non-zero exit status 1."
    (finding,) = explained(raised(0, "subprocess.CalledProcessError", text))
    assert finding.code == "DD312"


def test_a_failed_command_after_a_rank_has_ended_passes_that_on():
    text = "Command '['bash', 'launch.sh']' returned non-zero exit status 1."
    failed = raised(0, "subprocess.CalledProcessError", text).replace("[rank0]: ", "")
    assert explained(summary(1, -9) + failed)[0].code == "DD017"
    assert explained(summary(1) + failed)[0].code == "DD312"
    (finding,) = explained(failed + raised(1, "ValueError", "bad") + summary(1))
    assert finding.headline == "rank 1 failed with ValueError 'bad'"
    assert explained(failed)[0].code == "DD304"
    lost = raised(1, "RuntimeError", "[pair.cc:534] Connection closed by peer [10.0.0.2]:4021")
    assert explained(failed + lost)[0].code == explained(lost + failed)[0].code == "DD311"


def test_a_key_of_the_store_that_nobody_sets():
    text = "wait timeout after 4000ms, keys: /default_pg/0//model"
    (finding,) = explained(raised(1, "torch.distributed.DistStoreError", text) + summary(1))
    assert (finding.code, finding.ranks) == ("DD304", (1,))
    killed = raised(1, "torch.distributed.DistStoreError", text) + summary(0, -11, 7)
    assert explained(killed)[0].code == "DD012"
    asked, other = raised(0, "torch.distributed.DistStoreError", text), raised(1, "ValueError", "bad")
    assert explained(asked, other)[0].headline == "rank 1 failed with ValueError 'bad'"
    assert explained(asked + summary(1))[0].code == "DD312"


def test_an_error_of_hydra_has_no_traceback():
    text = "Error executing job with overrides: []\nError in call to target 'net.Net':\nTypeError(\"no depth\")\n"
    (finding,) = explained(text + summary(0))
    assert finding.headline == "rank 0 ended: Error in call to target 'net.Net'"


def test_a_container_that_did_not_start():
    text = (
        "3: slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "3: slurmstepd: error: pyxis:     10-shadow.sh: line 70: 3474706 Broken pipe\n"
        "srun: error: node-b: task 3: Exited with exit code 1\n"
    )
    (finding,) = explained(text)
    assert finding.headline.startswith(
        "the job did not start: slurmstepd: error: pyxis: container start failed"
    )


def test_a_script_that_starts_processes_when_it_is_imported():
    text = "An attempt has been made to start a new process before the\n"
    text += "[rank1]: current process has finished its bootstrapping phase."
    (finding,) = explained(raised(1, "RuntimeError", text) + summary(1))
    assert finding.fix.startswith("if __name__ == '__main__':")


def test_what_was_handled_is_told():
    handled = raised(1, "KeyError", "'lr'")
    link = (
        "[rank1]: \n[rank1]: During handling of the above exception, another exception occurred:\n[rank1]: \n"
    )
    (finding,) = explained(handled + link + raised(1, "OSError", "no folder", line=30))
    assert finding.headline == "rank 1 failed with OSError 'no folder'"
    assert "It was raised while \"KeyError: 'lr'\" was handled." in finding.why


def test_what_came_of_a_failed_command_tells_more():
    failed = raised(
        1, "subprocess.CalledProcessError", "Command '['ninja', '-v']' returned non-zero exit status 1."
    )
    link = "[rank1]: \n[rank1]: The above exception was the direct cause of the following exception:\n[rank1]: \n"
    (finding,) = explained(failed + link + raised(1, "RuntimeError", "Error building extension 'fused_adam'"))
    assert finding.headline == "rank 1 failed with RuntimeError \"Error building extension 'fused_adam'\""


def test_an_exception_of_a_thread_leaves_its_process():
    thread = 'Traceback (most recent call last):\n  File "/lib/python3.11/threading.py", line 9, in _bootstrap_inner\n'
    thread += '    self.run()\n  File "/home/user/train.py", line 9, in feed\n    f()\nOSError: no shard\n'
    (finding,) = explained(thread + summary(0))
    assert finding.why.startswith("It is the first exception that ended a thread")

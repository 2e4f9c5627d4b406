"""``ddpdoctor explain FILE...`` as a command."""

import gzip
import json
import lzma
import os
import subprocess
import sys
import threading
from pathlib import Path

import jsonschema
import pytest

from tests.support.command import in_process
from tests.support.logs import raised, summary

OUTPUTS = Path(__file__).parents[1] / "logs/outputs"
FAILED = raised(2, "ValueError", "bad sample") + summary(2)
SCHEMA = Path(__file__).parents[2] / "ddpdoctor/report/schema.json"


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.log").write_text(FAILED)
    return tmp_path


def test_one_screen_with_the_root_cause(job):
    done = in_process("explain", "job.log", cwd=job)
    assert done.status == 1
    assert "FAIL[DD304]: rank 2 failed with ValueError 'bad sample'" in done.out
    assert "--> /home/user/train.py:12 in main" in done.out
    assert "job.log:4: ValueError: bad sample" in done.out
    assert len(done.out.splitlines()) <= 25


def test_a_healthy_output(job):
    done = in_process("explain", str(OUTPUTS / "healthy.log"), cwd=job)
    assert (done.status, "FAIL" in done.out, "warn" in done.out) == (0, False, False)


def test_json_has_the_published_shape(job):
    done = in_process("explain", "job.log", "--format", "json", cwd=job)
    report = json.loads(done.out)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert (report["exit_status"], [one["code"] for one in report["findings"]]) == (1, ["DD304"])


@pytest.mark.parametrize("format", ["junit", "sarif", "github", "html"])
def test_the_other_formats(job, format):
    done = in_process("explain", "job.log", "--format", format, "--output", "report", cwd=job)
    assert (done.status, done.out) == (1, "")
    assert "rank 2 failed with ValueError" in (job / "report").read_text()


def test_packed_files_folders_and_several(job):
    (job / "one.log.gz").write_bytes(gzip.compress(FAILED.encode()))
    (job / "two.log.xz").write_bytes(lzma.compress(FAILED.encode()))
    for arguments in (["one.log.gz"], ["two.log.xz"], ["."], ["one.log.gz", "two.log.xz"]):
        done = in_process("explain", *arguments, cwd=job)
        assert (done.status, "DD304" in done.out) == (1, True), arguments


def test_a_pipe(job):
    command = [sys.executable, "-m", "ddpdoctor", "explain", "-"]
    done = subprocess.run(command, input=FAILED, capture_output=True, text=True, cwd=job, check=False)
    assert done.returncode == 1
    assert "stdin:4: ValueError: bad sample" in done.stdout


def test_a_named_pipe(job):
    os.mkfifo(job / "pipe")
    writer = threading.Thread(target=(job / "pipe").write_text, args=(FAILED,))
    writer.start()
    assert in_process("explain", "pipe", cwd=job).status == 1
    writer.join()


def test_a_code_wins_over_a_file_of_its_name(job):
    (job / "DD002").write_text(FAILED)
    assert "DD002 port-in-use" in in_process("explain", "DD002", cwd=job).out
    assert in_process("explain", "./DD002", cwd=job).status == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.log", None, "name 'missing.log', and there is no such file"),
        ("empty.log", b"", "the input is empty"),
        ("binary", bytes(range(8)) * 4 + bytes(4000), "'binary' is a binary file, not a job's output"),
        ("cut.gz", gzip.compress(FAILED.encode())[:30], "'cut.gz' cannot be read"),
    ],
    ids=["missing", "empty", "binary", "cut"],
)
def test_what_cannot_be_read(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = in_process("explain", name, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_secrets_of_the_environment_are_masked(job):
    (job / "job.log").write_text(raised(0, "ValueError", "no access with s3cr3t-value-of-mine"))
    done = in_process(
        "explain", "job.log", "--format", "json", cwd=job, env={"SERVICE_PASSWORD": "s3cr3t-value-of-mine"}
    )
    assert "s3cr3t" not in done.out
    assert "***" in done.out


def test_the_facts(job):
    line = "node-a:1:2 [0] NCCL INFO comm 0x1 rank 3 nranks 4 cudaDev 0 busId 1 - Init COMPLETE\n"
    (job / "job.log").write_text("node-a:1:2 [0] NCCL INFO Using network Socket\n" + line)
    assert (
        "3       network Socket: no device named" in in_process("explain", "--facts", "job.log", cwd=job).out
    )
    done = in_process("explain", "--facts", "job.log", "--format", "json", cwd=job)
    assert json.loads(done.out)["facts"] == [{"ranks": [3], "text": "network Socket: no device named"}]
    (job / "job.log").write_text("step 1\n")
    assert in_process("explain", "--facts", "job.log", cwd=job).status == 2

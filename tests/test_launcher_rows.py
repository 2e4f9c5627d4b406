"""A new launcher is one row of ddpdoctor/recorder/launchers.py: everything that knows launchers knows it then."""

import os
import shutil
import subprocess
import sys

from tests.packaging.documents import ROOT, blocks_of

ASKED = """
import os
from ddpdoctor import registry
from ddpdoctor.cli.launchers import with_launcher
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.hang.jobs import jobs_among
from ddpdoctor.host.system import Process
from ddpdoctor.logs import line_prefixes, root_cause
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.model import Source
from ddpdoctor.recorder.launchers import LAUNCHER_VARIABLES

checks = registry.select(Source.LOG)


def headlines(text):
    log = read([Stream("job.log", [text.encode()])], root_cause.words(checks))
    verdicts = root_cause.examine(log, checks, print)
    return [finding.headline for verdict in verdicts for finding in verdict.findings]


environ = {"TUG_RANK": "3", "TUG_SIZE": "4", "TUG_JOB": "7", "TUG_NODE": "1", "TUG_HOSTS": "4", "TUG_FIRST": "h0"}
process = Process(os.getpid(), ("python", "train.py"), environ=environ)
(job,) = jobs_among([process])
assert (job.ranks, job.world_size) == ({os.getpid(): 3}, 4), job
options = with_launcher(CheckOptions(), environ)
assert (options.nnodes, options.node_rank, options.master_addr) == (4, 1, "h0"), options
assert {"TUG_RANK", "TUG_JOB", "TUG_SIZE"} <= {*LAUNCHER_VARIABLES}
line = line_prefixes.strip("<tug 3@host-7> ValueError: no batch")
assert (line.text, line.rank, line.host) == ("ValueError: no batch", 3, "host-7"), line
assert headlines("tug 3 sank with status 7")[0].startswith("rank 3 ended with exit status 7"), headlines
assert headlines("tugboat: command not found") == ["the job did not start: tugboat: command not found"]
assert headlines("tugboat: no harbour for 4 ranks") == ["the job did not start: tugboat: no harbour for 4 ranks"]
print("known everywhere")
"""


def test_a_row_is_all_that_a_new_launcher_takes(tmp_path):
    for package in ("ddpdoctor", "checks"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (row,) = (block for block in blocks_of("CONTRIBUTING.md", "python") if block.startswith("Launcher("))
    table = tmp_path / "ddpdoctor" / "recorder" / "launchers.py"
    before, begins, rows = table.read_text().partition("\nLAUNCHERS = (\n")
    table.write_text(f"{before}{begins}{row.rstrip()},\n{rows}")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "known everywhere\n", done.stderr

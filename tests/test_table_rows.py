"""A new launcher or collective is one row of a table: everything that knows them knows it then."""

import os
import shutil
import subprocess
import sys

from tests.packaging.documents import ROOT, blocks_of

OF_LAUNCHERS = """
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


OF_OPERATIONS = """
from pathlib import Path
from ddpdoctor.blame.place import OF_TWO
from ddpdoctor.model import Where
from ddpdoctor.program import Origin, Program
from ddpdoctor.recorder.operations import Kind, kind_of, names
from ddpdoctor.trace.sequence import OF_ONE_SIZE

assert "all_average" in names("core") and kind_of("all_average") is Kind.ALL
assert "all_average" in OF_ONE_SIZE and "all_average" not in OF_TWO
text = "import torch.distributed as dist\\n\\nvalue = dist.get_rank()\\ndist.all_average(value)\\nshow(value)\\n"
Path("train.py").write_text(text)
value = Program("train.py").calls_at(Where("train.py", 5))[0].arguments[0]
assert Origin.REDUCED in value.origins.kinds and Origin.RANK not in value.origins.kinds, value.origins
print("known everywhere")
"""


def answer(folder, table: str, begins: str, asked: str) -> tuple[str, str]:
    """What a program prints, and its errors, where a table of ddpdoctor has the row of CONTRIBUTING.md too."""
    for package in ("ddpdoctor", "checks"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    kind = begins.lower().rstrip("s")
    (row,) = (
        block for block in blocks_of("CONTRIBUTING.md", "python") if block.lower().startswith(f"{kind}(")
    )
    file = folder / table
    before, line, rows = file.read_text().partition(f"\n{begins} = (\n")
    file.write_text(f"{before}{line}{row.rstrip()},\n{rows}")
    return printed(folder, asked)


def printed(folder, asked: str) -> tuple[str, str]:
    """What a program prints that imports the packages of this folder, and its errors."""
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


OF_FRAMEWORKS = """
from ddpdoctor.check import Check
from ddpdoctor.frameworks import Framework, framework_of

assert framework_of("puppeteer.engine") is Framework.PUPPETEER and Framework("Puppeteer") is Framework.PUPPETEER
assert framework_of("puppeteers") is None and framework_of("lightning.pytorch.loops") is Framework.LIGHTNING
print("known everywhere")
"""


def test_a_row_is_all_that_a_new_launcher_takes(tmp_path):
    known, errors = answer(tmp_path, "ddpdoctor/recorder/launchers.py", "LAUNCHERS", OF_LAUNCHERS)
    assert known == "known everywhere\n", errors


def test_a_row_is_all_that_a_new_collective_takes(tmp_path):
    known, errors = answer(tmp_path, "ddpdoctor/recorder/operations.py", "OPERATIONS", OF_OPERATIONS)
    assert known == "known everywhere\n", errors


def test_a_row_is_all_that_a_new_framework_takes(tmp_path):
    shutil.copytree(ROOT / "ddpdoctor", tmp_path / "ddpdoctor", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "ddpdoctor" / "frameworks.py"
    before, last, after = file.read_text().partition('    RAY = "Ray Train", "ray"\n')
    file.write_text(f'{before}{last}    PUPPETEER = "Puppeteer", "puppeteer"\n{after}')
    known, errors = printed(tmp_path, OF_FRAMEWORKS)
    assert known == "known everywhere\n", errors

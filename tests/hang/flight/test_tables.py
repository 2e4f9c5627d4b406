"""The tables of torch.distributed.debug's server, as torch 2.13's own ``build_db`` and tabulate 0.10 write them."""

import json
import os
from pathlib import Path

import pytest

from ddpdoctor.hang.flight.tables import read_tables
from tests.support.command import in_process

HEAD = """\
--- Groups ---
                  id  desc          size
07327027465595056883  default_pg       3
--- Memberships ---
            group_id    global_rank
07327027465595056883              0
07327027465595056883              1
07327027465595056883              2
--- Collectives ---
  id    group_id  pass_check      collective_seq_id    p2p_seq_id    record_id  pg_desc       collective_name    \
input_sizes    output_sizes    expected_ranks    collective_state    collective_frames    input_numel    \
output_numel    missing_ranks    mismatch_collectives    type_of_mismatch
"""
CALLS = """\
--- NCCL Calls ---
  id    collective_id    group_id    global_rank    traceback_id  collective_type    sizes
   0                0           0              0               0  nccl:all_reduce    [[2048]]
   1                0           0              1               0  nccl:all_reduce    [[2048]]
"""
FRAMES = "[{'name': 'all_reduce', 'filename': '/venv/torch/distributed/distributed_c10d.py', 'line': 3245}, "
FRAMES += "{'name': 'train_step', 'filename': '/jobs/train.py', 'line': 88}]"
OTHER = (
    "{1: Collective(id=2, group_id='0', pass_check=False, collective_seq_id=3, p2p_seq_id=0, record_id=3, "
    "pg_desc='0:default_pg', collective_name='nccl:all_gather', input_sizes=[[4096]], output_sizes=[[4096]], "
    "expected_ranks={0, 1, 2}, collective_state='started', collective_frames=[], input_numel=None, "
    "output_numel=None, missing_ranks=None, mismatch_collectives=None, type_of_mismatch=<torch.MatchInfo>)}"
)


def row(number: int, state: str = "completed", frames: str = "[]", rest: str = "") -> str:
    agrees = "False" if "Collective" in rest else "True "
    return (
        f"   {number - 1}           0  {agrees}                           {number}             0            {number}"
        f"  0:default_pg  nccl:all_reduce    [[{number * 1024}]]       [[{number * 1024}]]        {{0, 1, 2}}"
        f"         {state:<15}     {frames}{rest}\n"
    )


def served(*rows: str, title: str = "FR Trace") -> str:
    return f"=== {title} ===\n{HEAD}{''.join(rows)}{CALLS}"


LATE = served(row(1), row(2), row(3, "started", FRAMES, "                                 {2}"))


@pytest.mark.parametrize("command", ["hang", "explain"])
def test_the_rank_that_never_came_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "fr_trace_20261128_010203.txt").write_text(LATE)
    done = in_process(command, str(tmp_path), "--format", "json", cwd=tmp_path)
    (finding,) = done.report["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD301", [2])
    assert "all_reduce 3 of the default group" in finding["headline"]
    assert "/jobs/train.py" in json.dumps(finding)


def test_a_rank_that_called_something_else(tmp_path: Path) -> None:
    rows = row(1), row(2), row(3, "started", rest=f"                         {OTHER}")
    (tmp_path / "fr_trace_1.txt").write_text(
        served(title="FR Trace") + "\n\n" + served(*rows, title="FR Trace NCCL")
    )
    done = in_process("explain", str(tmp_path), "--format", "json", cwd=tmp_path)
    (finding,) = done.report["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD302", [1])
    assert "all_gather of [4096]" in finding["headline"]


def test_a_job_that_went_on_between_two_dumps_is_healthy(tmp_path: Path) -> None:
    older, newer = tmp_path / "fr_trace_1.txt", tmp_path / "fr_trace_2.txt"
    older.write_text(served(row(1), row(2, "started", rest="                                 {2}")))
    newer.write_text(LATE)
    os.utime(older, (1, 1))
    for command in ("hang", "explain"):
        done = in_process(command, str(tmp_path), "--format", "json", cwd=tmp_path)
        assert not done.report["findings"], command
    older.write_text(LATE)  # and where they show the same, it is stuck
    os.utime(older, (1, 1))
    assert in_process("explain", str(tmp_path), "--format", "json", cwd=tmp_path).report["findings"]


def test_what_all_ranks_of_gloo_joined_is_over() -> None:
    dumps = read_tables(served(row(1, "scheduled"), row(2, "scheduled")), Path("fr_trace_1.txt"))
    assert sorted(dumps) == [0, 1, 2]
    assert not any(dump.waits for dump in dumps.values())


def test_torchcomms_tables_and_empty_ones(tmp_path: Path) -> None:
    assert read_tables(LATE.replace("FR Trace", "TorchComms FR Trace"), tmp_path)[0].waits
    assert [dump.last for dump in read_tables(served(), tmp_path).values()] == [{}, {}, {}]
    assert read_tables("PARTIAL DATA: 1/2 workers responded\n", tmp_path) == {}

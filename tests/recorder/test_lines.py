"""Which lines each training step reaches, and what conditions go by, as it is written down."""

import sys
import textwrap
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ddpdoctor.recorder import sites
from ddpdoctor.recorder.events.process import Called, Code, Decided, Reached
from ddpdoctor.recorder.sites import variables_of
from tests.recorder.scripts import JOIN, recorded, recordings, run
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

TRAIN = """
import sys
def train():
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"lora_rank": 4 + rank}
    for step in range(34):
        loss = model(torch.ones(2, 2)).mean()
        loss.backward()
        optimizer.step()
        if lead():
            print("rank 0")
        if step == 2 and settings["lora_rank"] > 4:
            print("rank 1 in step 2")
def lead():
    return rank == 0
train()
"""


def _line(script: str, text: str) -> int:
    return next(number for number, line in enumerate(script.splitlines(), 1) if text in line)


def _reached(recording: Any) -> list[tuple[int, set[tuple[str, int]]]]:
    """Functions and lines of each training step that was observed."""
    functions = {code.number: code.function for code in recording.events(Code)}
    now: set[tuple[str, int]] = set()
    steps = []
    for event in recording.events(Reached):
        now = (now | _lines(event.more, functions)) - _lines(event.fewer, functions)
        steps.append((event.step, now))
    return steps


def _lines(rows: Any, functions: dict[int, str]) -> set[tuple[str, int]]:
    return {
        (functions[number], line)
        for number, *ranges in rows
        for begin, end in zip(ranges[::2], ranges[1::2], strict=True)
        for line in range(begin, end + 1)
    }


def test_lines_of_each_step_by_rank(tmp_path: Path) -> None:
    ran = run(tmp_path, TRAIN, nproc=2)
    script = (tmp_path / "train.py").read_text()
    first, second = (dict(_reached(it)) for it in recordings(ran))
    assert list(first) == [*range(35)]  # one that is counted only begins with the update before it
    only_0, only_1 = _line(script, 'print("rank 0")'), _line(script, 'print("rank 1 in')
    assert [step for step, lines in first.items() if ("train", only_0) not in lines] == [33]
    assert [step for step, lines in second.items() if ("train", only_0) in lines] == []
    assert [step for step, lines in second.items() if ("train", only_1) in lines] == [2]
    assert [step for step, lines in first.items() if ("train", only_1) in lines] == []
    setting = _line(script, "settings = ")
    assert [step for step, lines in first.items() if ("train", setting) in lines] == [0]


def test_a_run_that_is_watched_tells_of_steps_in_full_only(tmp_path: Path) -> None:
    ran = run(tmp_path, TRAIN.replace("range(34)", "range(45)"), full=True)
    assert [step for step, _ in _reached(recordings(ran)[0])] == [*range(33), 36, 40, 44]


def test_what_an_optimizer_calls_of_the_script(tmp_path: Path) -> None:
    """Lines are not noticed while torch alone updates weights; whatever of the script is called meanwhile is."""
    body = """
        class Own(torch.optim.SGD):
            def step(self, closure=None):
                return super().step()  # overridden
        def hooked(*_):
            return None  # in a hook
        def closure():
            return model(torch.ones(2, 2)).mean() * 1  # in a closure
        model = DistributedDataParallel(nn.Linear(2, 2))
        plain, before, after = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(3))
        before.register_step_pre_hook(hooked)
        after.register_step_post_hook(hooked)
        own = Own(model.parameters(), lr=0.1)
        for step in range(36):
            closure().backward()
            for optimizer in (plain, own, before, after):
                optimizer.step()
                last = "behind the updates"
            plain.step(closure)
            if step == 34:
                plain.param_groups[0]["lr"] = "fails"
                try:
                    plain.step()
                except TypeError:
                    plain.param_groups[0]["lr"] = 0.1
                    last = "behind a failure"
    """
    ran = run(tmp_path, textwrap.dedent(body), nproc=1)
    (recording,), script = recordings(ran), (tmp_path / "train.py").read_text()
    steps = _reached(recording)
    for text in ("# overridden", "# in a hook", "# in a closure", '"behind the updates"'):
        line = _line(script, text)
        assert sum(line in {number for _, number in lines} for _, lines in steps) >= 36, text
    assert [event.step for event in recording.events(Reached) if event.partial]


def test_what_conditions_go_by_and_who_calls(tmp_path: Path) -> None:
    ran = run(tmp_path, TRAIN, nproc=2)
    script = (tmp_path / "train.py").read_text()
    condition = _line(script, "if step == 2")
    for rank, recording in enumerate(recordings(ran)):
        codes = {code.number: code for code in recording.events(Code)}
        told = [it for it in recording.events(Decided) if it.line == condition]
        assert told[0].values == {"step": 0, "settings['lora_rank']": 4 + rank}
        assert told[1].values == {"step": 1}
        callers = [it.at.line for it in recording.events(Called) if codes[it.code].function == "lead"]
        assert callers == [_line(script, "if lead():")]
        branches = {line: after for code in codes.values() for line, *after in code.branches}
        assert branches[condition] == [_line(script, "for step"), condition + 1]


@pytest.mark.parametrize("items", [1_000, 50_000])
def test_a_step_of_many_items_is_traced_for_some_of_them_and_says_so(items: int, tmp_path: Path) -> None:
    script = f"""
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        total = sum(number & 1 for number in range({items}))
        after = total
        model(torch.ones(2, 2)).mean().backward()
        optimizer.step()
    """
    recording = recordings(run(tmp_path, script))[0]
    lines = _reached(recording)
    behind = _line((tmp_path / "train.py").read_text(), "after = total")
    is_traced = items < 20_000 or sys.version_info >= (3, 12)  # there each place is noticed once
    assert [("<module>", behind) in reached for _, reached in lines[:2]] == [is_traced] * 2
    assert [event.partial for event in recording.events(Reached)][:2] == [not is_traced] * 2


def test_a_script_that_asks_sees_no_trace_function(tmp_path: Path) -> None:
    ran = run(tmp_path, "import sys\nprint(sys.gettrace())\ndist.destroy_process_group()")
    assert ran.outputs == ("None\n",)


def test_a_debugger_is_left_alone(tmp_path: Path) -> None:
    body = """
        import sys
        events = []
        def debugger(frame, event, argument):
            events.append(event)
            return debugger
        sys.settrace(debugger)
        model = DistributedDataParallel(nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(2, 2)).mean().backward()
            optimizer.step()
        assert sys.gettrace() is debugger
        sys.settrace(None)
        print(len(events) > 100)
    """
    script = tmp_path / "train.py"
    script.write_text(JOIN + textwrap.dedent(body))
    ran = run_forked(script, tmp_path / "ran", nproc=1)
    assert (ran.statuses, ran.outputs) == ((0,), ("True\n",)), ran.errors


def test_variables_stay_where_a_handler_reads_them_while_they_are_traced(monkeypatch: Any) -> None:
    """Python writes a traced function's variables back from the copy that a signal's handler must not clear then."""

    def count(number: int) -> int:
        total = number
        total += 1
        return total

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        assert frame.f_code is not count.__code__ or "number" in variables_of(frame)
        return trace

    before = sys.gettrace()
    monkeypatch.setattr(sites, "TRACERS", {trace.__code__})
    monkeypatch.setattr(sites, "gettrace", lambda: None)
    sys.settrace(trace)
    try:
        counted = count(3)
    finally:
        sys.settrace(before)
    assert counted == 4


def test_a_forked_worker_tells_nothing_of_its_lines(tmp_path: Path) -> None:
    body = """
        class Data(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.zeros(2) + index
        for batch in DataLoader(Data(), num_workers=1):
            pass
    """
    recording = recorded(tmp_path, body)
    assert [child.events(Reached) for child in recording.children] == [()] * len(recording.children)
    assert recording.events(Reached)

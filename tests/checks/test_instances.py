"""Every instance of a problem is a finding of its own, and what one line makes of many things is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpdoctor import registry
from ddpdoctor.judge import Merged, judge, merge
from ddpdoctor.model import Kind, Source
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.files import FileEvent, Load, LogWriter, Save
from ddpdoctor.recorder.events.training import Parameter
from ddpdoctor.silence import Silencer
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.logs import explained, raised
from tests.support.recordings import recorded, replace, where


def judged(trace: Trace, *codes: str, hides: Callable[[Any], bool] = lambda finding: False) -> Merged:
    """What a report tells of a run, with these checks asked."""
    broken: list[str] = []
    merged = merge(judge(Source.RUN, registry.select(Source.RUN, codes), trace, broken.append), hides)
    assert not broken
    return merged


def lines(merged: Merged) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.where.line if finding.where else None) for finding in merged.findings]


def with_events(**events: Any) -> Trace:
    """Two ranks that did the same to some files."""

    def change(rank: int, recording: Recording) -> Recording:
        return replace(recording, **events)

    return recorded(change=change)


def write(path: str, line: int) -> FileEvent:
    return FileEvent("write", path, 10.0, where(line))


def save(path: str, line: int) -> Save:
    return Save(path, where(line), 10.0, 10.5, 1024)


def test_two_races_of_which_a_comment_silences_the_first(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("\n" * 14 + "prepare(words)  # ddpdoctor: ignore[DD020]\n" + "\n" * 9)
    trace = with_events(files=(write("/jobs/words.txt", 15), write("/jobs/cache.bin", 22)))
    merged = judged(trace, "DD020", hides=Silencer(tmp_path, tmp_path).hides)
    assert lines(merged) == [("DD020", 22)]
    assert [finding.where for finding in merged.silenced] == [where(15)]
    (line,) = merged.results
    assert (line.outcome, line.text) == ("warn", merged.findings[0].headline)


def test_a_checkpoint_of_every_rank_hides_no_race_of_another_file() -> None:
    events = (write("/jobs/last.pt.part", 15), write("/jobs/words.txt", 22))
    trace = with_events(files=events, saves=(save("/jobs/last.pt", 30),))
    assert lines(judged(trace, "DD020", "DD402")) == [("DD402", 30), ("DD020", 15), ("DD020", 22)]


def test_files_that_one_line_writes_are_one_race() -> None:
    trace = with_events(files=tuple(write(f"/jobs/part{number}", 15) for number in range(12)))
    (finding,) = judged(trace, "DD020").findings
    assert "'/jobs/part0' and 11 more paths" in finding.headline
    assert len(finding.about) == 12


def test_files_that_pairs_of_ranks_share_by_one_line_are_one_race() -> None:
    def change(rank: int, recording: Recording) -> Recording:
        pair = rank // 2
        return replace(
            recording, files=(write(f"/jobs/cache{pair}", 15),), saves=(save(f"/jobs/{pair}.pt", 30),)
        )

    merged = judged(recorded(4, change=change), "DD020", "DD402")
    assert lines(merged) == [("DD402", 30), ("DD020", 15)]
    assert all(finding.ranks == (0, 1, 2, 3) and len(finding.about) == 2 for finding in merged.findings)


def test_checkpoints_by_the_line_that_saves_them() -> None:
    epochs = tuple(save(f"/jobs/epoch{number}.pt", 30) for number in range(5))
    merged = judged(with_events(saves=(*epochs, save("/jobs/best.pt", 36))), "DD402")
    assert lines(merged) == [("DD402", 30), ("DD402", 36)]
    assert merged.findings[0].headline == "ranks 0-1 write the same file 'epoch0.pt' and 4 more files"


def test_checkpoints_that_are_read_too_early() -> None:
    def change(rank: int, recording: Recording) -> Recording:
        if rank == 0:
            return replace(recording, saves=(save("/jobs/last.pt", 30), save("/jobs/best.pt", 36)))
        loads = (Load("/jobs/last.pt", where(60), 11.0, 11.1), Load("/jobs/best.pt", where(64), 12.0, 12.1))
        return replace(recording, loads=loads)

    merged = judged(recorded(change=change), "DD401")
    assert lines(merged) == [("DD401", 60), ("DD401", 64)]
    assert [subject.name for finding in merged.findings for subject in finding.about] == [
        "/jobs/last.pt",
        "/jobs/best.pt",
    ]


def test_saves_of_wrapped_states() -> None:
    saves = (
        replace(save("/jobs/last.pt", 30), prefix="module."),
        replace(save("/jobs/a.pt", 36), prefix="module."),
    )
    trace = with_events(saves=saves)
    assert lines(judged(trace, "DD407")) == [("DD407", 30), ("DD407", 36)]


def with_second_loader(change: Callable[[Recording], Recording]) -> Trace:
    """Two ranks that train over a second DataLoader too, made in line 80 and drawn in line 85."""

    def twice(rank: int, recording: Recording) -> Recording:
        second = replace(recording.loaders[0], index=1, at=where(80))
        passes = tuple(
            replace(drawn, loader=1, at=where(85), begin=drawn.begin + 5, end=(drawn.end or 0) + 5)
            for drawn in recording.passes
        )
        both = replace(recording, loaders=(*recording.loaders, second), passes=(*recording.passes, *passes))
        return change(both)

    return recorded(change=twice)


def test_loaders_that_repeat_their_order() -> None:
    def never_told(recording: Recording) -> Recording:
        first = {drawn.loader: drawn for drawn in reversed(recording.passes)}
        passes = (
            replace(drawn, indices=first[drawn.loader].indices, sampler=first[drawn.loader].sampler)
            for drawn in recording.passes
        )
        return replace(recording, passes=tuple(passes))

    merged = judged(with_second_loader(never_told), "DD103")
    assert lines(merged) == [("DD103", 45), ("DD103", 85)]
    assert [finding.about for finding in merged.findings] == [
        Kind.LOADER.of("train.py:40"),
        Kind.LOADER.of("train.py:80"),
    ]
    assert all(finding.ranks == (0, 1) for finding in merged.findings)


def test_loaders_that_draw_the_same_and_one_loader_in_many_passes() -> None:
    def alike(recording: Recording) -> Recording:
        same = (replace(drawn, indices=tuple(range(16)), batches=4) for drawn in recording.passes)
        loaders = (replace(loader, content="same") for loader in recording.loaders)
        return replace(recording, passes=tuple(same), loaders=tuple(loaders))

    merged = judged(with_second_loader(alike), "DD101", "DD104")
    assert lines(merged) == [("DD101", 40), ("DD101", 80)]


def test_a_sampler_of_another_rank_hides_no_overlap_of_another_loader() -> None:
    def change(rank: int, recording: Recording) -> Recording:
        wrong = replace(recording.passes[0].sampler or Sampler(""), rank=0)
        first, second = recording.loaders[0], replace(recording.loaders[0], index=1, at=where(80))
        shard = tuple(range(0, 16, 2))
        passes = (
            *(replace(drawn, sampler=wrong, indices=shard) for drawn in recording.passes),
            *(
                replace(
                    drawn,
                    loader=1,
                    at=where(85),
                    begin=drawn.begin + 5,
                    indices=tuple(range(4 * rank, 4 * rank + 8)),
                )
                for drawn in recording.passes
            ),
        )
        return replace(recording, loaders=(first, second), passes=passes)

    merged = judged(recorded(change=change), "DD104", "DD105")
    assert lines(merged) == [("DD104", 80), ("DD105", 40)]


def of_two_models(bypassed: tuple[int, ...]) -> Trace:
    """Two ranks with two wrapped models, of which some are called around their wrapper, in line 60 and line 61."""
    keys = ("weight", "weight (wrapper 1)")

    def change(rank: int, recording: Recording) -> Recording:
        wrappers = tuple(
            replace(
                recording.wrappers[0],
                index=index,
                at=where(30 + index),
                parameters=(Parameter(key, (4,), "f"),),
            )
            for index, key in enumerate(keys)
        )
        steps = tuple(changed(step, rank) for step in recording.steps)
        return replace(recording, wrappers=wrappers, steps=steps)

    def changed(step: TrainingStep, rank: int) -> TrainingStep:
        forwards = tuple(
            replace(step.forwards[0], wrapper=index, at=where(60 + index), around=index in bypassed)
            for index in (0, 1)
        )
        reduced = tuple(index for index in (0, 1) if index not in bypassed)
        gradients = {
            key: f"{step.index} {rank if index in bypassed else ''}" for index, key in enumerate(keys)
        }
        after = {
            key: f"{step.index + 1} {rank if index in bypassed else ''}" for index, key in enumerate(keys)
        }
        update = replace(step.optimizer_steps[0], gradients=gradients, before=None, after=after)
        backward = replace(step.backwards[0], reduced=reduced)
        return replace(step, forwards=forwards, backwards=(backward,), optimizer_steps=(update,))

    return recorded(change=change)


def test_wrapped_models_that_are_called_around_their_wrappers() -> None:
    merged = judged(of_two_models((0, 1)), "DD201", "DD206")
    assert lines(merged) == [("DD201", 60), ("DD201", 61)]
    about = [finding.about for finding in merged.findings]
    assert about == [Kind.MODEL.of("Linear"), Kind.MODEL.of("Linear (wrapper 1)")]
    assert "4 training steps" in merged.findings[1].evidence[0].text


def test_a_bypassed_model_explains_its_own_weights_only() -> None:
    trace = of_two_models((0,))

    def drifting(recording: Recording, rank: int) -> Recording:
        steps = []
        for step in recording.steps:
            (update,) = step.optimizer_steps
            after = {**(update.after or {}), "weight (wrapper 1)": f"{step.index} by itself {rank}"}
            steps.append(replace(step, optimizer_steps=(replace(update, after=after),)))
        return replace(recording, steps=tuple(steps))

    ranks = (
        replace(one, recording=drifting(one.recording, one.rank)) for one in trace.ranks if one.recording
    )
    merged = judged(replace(trace, ranks=tuple(ranks)), "DD201", "DD206")
    assert [finding.code for finding in merged.findings] == ["DD201", "DD206"]
    assert merged.findings[1].about == Kind.MODEL.of("Linear (wrapper 1)")


def test_gpus_that_fail_in_a_jobs_output() -> None:
    lost = "[1234.5] NVRM: Xid (PCI:0000:{bus}): 79, pid=1, GPU has fallen off the bus."
    text = "\n".join(lost.format(bus=bus) for bus in ("41:00", "b3:00", "41:00"))
    findings = explained(text)
    assert [finding.about for finding in findings] == [Kind.GPU.of("0000:41:00"), Kind.GPU.of("0000:b3:00")]
    assert [finding.evidence[0].text.partition(": ")[0] for finding in findings] == ["job.log:1", "job.log:2"]


def test_symptoms_in_a_jobs_output_are_explained_by_the_first_cause() -> None:
    lost = "[1234.5] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"
    (finding,) = explained(lost + raised(0, "ValueError", "no sample"))
    assert finding.code == "DD805"


def test_parameters_by_the_model_that_they_belong_to() -> None:
    """Eight parameters of one model are one finding, and those of a second model another."""
    keys = [f"head.{number}" for number in range(8)]

    def change(rank: int, recording: Recording) -> Recording:
        first = replace(
            recording.wrappers[0], parameters=tuple(Parameter(key, (4,), "f") for key in ("a", *keys))
        )
        second = replace(
            first, index=1, module="Critic", parameters=tuple(Parameter(key, (4,), "f") for key in "bc")
        )
        *steps, last = recording.steps
        forwards = (*last.forwards, replace(last.forwards[0], wrapper=1))
        gradients = {**dict.fromkeys(keys), "a": "1", "b": "2", "c": None}
        update = replace(last.optimizer_steps[0], gradients=gradients)
        steps.append(replace(last, forwards=forwards, optimizer_steps=(update,)))
        return replace(recording, wrappers=(first, second), steps=tuple(steps))

    merged = judged(recorded(change=change), "DD204")
    assert [finding.about for finding in merged.findings] == [
        Kind.MODEL.of("Linear"),
        Kind.MODEL.of("Critic (wrapper 1)"),
    ]
    assert "8 of" in merged.findings[0].headline


def test_lines_that_average_in_every_micro_batch() -> None:
    def change(rank: int, recording: Recording) -> Recording:
        steps = []
        for step in recording.steps:
            (backward,) = step.backwards
            critic = replace(backward, at=where(59))
            steps.append(replace(step, backwards=(backward, backward, critic, critic)))
        return replace(recording, steps=tuple(steps))

    assert lines(judged(recorded(change=change), "DD602")) == [("DD602", 49), ("DD602", 59)]


def test_logs_by_the_line_that_opens_them() -> None:
    opened = (("train", 12), ("test", 12), ("curves", 19))
    writers = (LogWriter("tensorboard", f"/jobs/{name}", where(line), 1.0) for name, line in opened)
    merged = judged(with_events(record=Record.made(*writers)), "DD606")
    assert lines(merged) == [("DD606", 12), ("DD606", 19)]
    assert "and 1 more target" in merged.findings[0].headline
